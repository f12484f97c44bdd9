"""`fanin`: every verb of the command line. A verb's module is imported when the verb is called, not before."""

from __future__ import annotations

import errno
import os
import sys
from io import TextIOWrapper
from pkgutil import resolve_name
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fanin.cli_errors import memory_limit, out_of_memory
from fanin.output import say


class Verb(NamedTuple):
    """A verb of the command line: its place in fanin.verbs, and the first paragraph of its help."""

    place: str
    summary: str
    passes_options_on: bool = False


VERBS = {
    "demo": Verb(
        "demo:demo",
        "Train a model with its gradients added up in emulated switches, and compare it with ring all-reduce.",
    ),
    "new": Verb(
        "new:new",
        "Make a folder with a P4 program, a controller, a worker, a topology, a STF test and a scenario that run.",
    ),
    "run": Verb("run:run", "Run a scenario, live or in virtual time: all its points, its table, its figure."),
    "sweep": Verb(
        "sweep:sweep",
        "Run the product of settings on all cores, as in: fanin sweep FILE --set loss=0,0.01 --set workers=2,4,8.",
    ),
    "rerun": Verb(
        "results.rerun:rerun",
        "Run points of earlier results again, from what their rows say alone, and compare.",
    ),
    "plot": Verb(
        "results.plot:plot",
        "Draw a column of results over another: medians, and how far repetitions are from one another.",
    ),
    "compare": Verb(
        "results.compare:compare",
        "Compare results point by point: ratios of medians, and which of them are beyond noise.",
    ),
    "diagnose": Verb(
        "results.diagnose:diagnose",
        "Name the likely cause of a slow run, from what its links and workers did, with the evidence.",
    ),
    "report": Verb(
        "results.report:report", "Make one page of HTML of results, which needs no other file and no network."
    ),
    "lesson": Verb(
        "lesson:app", "List the lessons that come with fanin, or run one: its table, its figure, what to see."
    ),
    "paths": Verb(
        "paths:paths",
        "Show which way each flow of a scenario takes through the switches, and how many flows meet.",
    ),
    "cost": Verb(
        "cost:cost",
        "Say by closed forms which share of their time GPUs wait for gradients, and what that costs.",
    ),
    "compile": Verb(
        "programs.compile:compile_program",
        "Compile a P4_16 program to BMv2 JSON and P4Info, as p4c-bm2-ss would.",
    ),
    "diff": Verb(
        "programs.diff:diff",
        "Compile with p4c and with fanin, run on BMv2 and on fanin's switch, and print where they differ.",
    ),
    "doctor": Verb(
        "doctor:doctor",
        "Check the machine. The exit status is 1 if something is missing without which fanin does not run.",
    ),
    "up": Verb("running.up:up", "Build a network, program it, and keep it up until Ctrl-C."),
    "shell": Verb(
        "running.shell:shell", "Open p4runtime-shell on a running switch, with the P4Info of its program."
    ),
    "ps": Verb("running.ps:ps", "List the networks that are up: switches, hosts, and the processes on them."),
    "jobs": Verb(
        "running.jobs:jobs",
        "List the jobs of a network that is up: hosts, slots, switches, and those that wait; or revoke a lease.",
    ),
    "top": Verb(
        "running.top:top",
        "Show what goes on in a network that is up, until Ctrl-C: jobs and who is waited for, switches, links.",
    ),
    "why": Verb(
        "running.why:why",
        "Say what a job waits for: each open chunk, the worker or switch it waits for, and the most likely culprit.",
    ),
    "exec": Verb(
        "running.execute:execute",
        "Run a command on a host of a network that is up, or a shell.",
        passes_options_on=True,
    ),
    "launch": Verb(
        "running.launch:app",
        "Run a program on the hosts of a network, a process on each, as mpirun and torchrun do.",
    ),
    "link": Verb(
        "running.link:link",
        "Show what the emulated links of a running switch do and have done, or change it, both ways.",
    ),
    "allreduce": Verb(
        "running.allreduce:allreduce",
        "All-reduce vectors through a network that is up, with a worker on each host, and check every sum.",
    ),
    "tables": Verb(
        "running.tables:tables",
        "Show the table entries and multicast groups of a running switch, in the names of its program.",
    ),
    "counters": Verb(
        "running.counters:counters",
        "Show what the counters of a running switch's program have counted: all cells that are not 0.",
    ),
    "packet": Verb(
        "running.packet:packet",
        "Send one packet through a running switch, and print its trace as fanin trace does.",
    ),
    "stf": Verb(
        "programs.stf:stf",
        "Run a STF test; the exit status is 0 if every packet came out as expected, 1 if not, 2 if it cannot be run.",
    ),
    "trace": Verb(
        "programs.trace:trace",
        "Print for each packet the parser's path, look-ups, branches, registers, and where it went or why it was "
        "dropped.",
    ),
    "clean": Verb(
        "clean:clean",
        "Remove what runs that were killed have left: processes and temporary folders. Runs that go on stay.",
    ),
    "soak": Verb(
        "soak:soak",
        "Run random scenarios of the protocol under faults, in virtual time, and check all invariants.",
    ),
    "fuzz": Verb(
        "programs.fuzz:fuzz",
        "Run random P4 programs on hostile packets under AddressSanitizer; stop at the first finding and shrink it.",
    ),
    "validate": Verb(
        "validate:validate",
        "Compare virtual time with a live network, closed forms, another simulator, or papers.",
    ),
    "bench": Verb("bench:bench", "Measure how fast things are on this machine."),
}


def load(name: str) -> Any:
    """Import a verb; its command, as typer makes it of a function, or of a Typer with verbs of its own."""
    verb = VERBS[name]
    found = resolve_name(f"fanin.verbs.{verb.place}")
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name, context_settings={"ignore_unknown_options": verb.passes_options_on})(function)
    return get_command(found)


class _Verbs(TyperGroup):
    """Lists the verbs from their table, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=verb.summary) for name, verb in VERBS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load(name), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            if error.filename is None:
                raise
            # Of what is written: options say what may not be read, but whole paths may be in the way.
            say(f"fanin: {error.filename}: {error.strerror}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    name="fanin",
    cls=_Verbs,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # not above: the list of verbs does without

        say(f"fanin {version('fanin')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """In-network aggregation emulator and P4 testbed."""


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Entry point of the command."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # where Debian keeps tc and ethtool, away from ordinary users
    if memory_limit() is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread reserves memory, or ends the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="namereplace")  # a terminal may have no ✓, which becomes \N{CHECK MARK}
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # where it fails only when Python ends, that is a traceback and exit status 120
    except Exception as error:
        if message := out_of_memory(error):
            sys.exit(f"fanin: {message}")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is left in its buffer
        sys.exit(f"fanin: cannot write {error.filename or 'what is to be printed'}: {error.strerror}")
