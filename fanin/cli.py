"""The command line: a table of verbs.

A verb's module is imported when the verb is called, not before.
"""

from __future__ import annotations

import errno
import locale
import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from inspect import cleandoc
from io import TextIOWrapper
from pkgutil import resolve_name
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from fanin.cli_errors import memory_limit, out_of_memory
from fanin.native.collector import collect_seldom
from fanin.output import say


class Verb(NamedTuple):
    """A verb of the command line.

    Attributes:
        panel: The panel of `fanin --help` that lists it.
        place: Its module and function or Typer below fanin.verbs.
        summary: The first paragraph of its help.
        passes_options_on: Options that the verb does not know belong to the command that it runs.
    """

    panel: str
    place: str
    summary: str
    passes_options_on: bool = False


VERBS = {
    "demo": Verb("Start", "demo:demo", "Train with in-network aggregation and compare with ring."),
    "doctor": Verb("Start", "doctor:doctor", "Check whether this machine can run fanin."),
    "lesson": Verb("Start", "lesson:app", "List the lessons, or run one."),
    "lab": Verb("Start", "lab:app", "Learn P4 in exercises with tests and hints; mark a class."),
    "new": Verb("Start", "new:new", "Create a folder with a P4 program and a scenario to edit."),
    "run": Verb("Experiments", "run:run", "Run a scenario, print its table and draw its figure."),
    "sweep": Verb("Experiments", "sweep:sweep", "Run a scenario for every combination of settings."),
    "paths": Verb("Experiments", "paths:paths", "Show the path of each flow through the switches."),
    "animate": Verb("Experiments", "animate:animate", "Draw packets as an animated SVG, a page, or a trace."),
    "import": Verb(
        "Experiments",
        "import_trace:import_trace",
        "Make a scenario of traces from PyTorch, Chakra or NCCL.",
    ),
    "cost": Verb("Experiments", "cost:cost", "Estimate how long GPUs wait for gradients, and the price."),
    "plot": Verb("Results", "results.plot:plot", "Plot one column of results against another."),
    "compare": Verb("Results", "results.compare:compare", "Compare two sets of results point by point."),
    "diagnose": Verb("Results", "results.diagnose:diagnose", "Find the likely cause of a slow run or job."),
    "report": Verb("Results", "results.report:report", "Write results as one self-contained HTML page."),
    "rerun": Verb("Results", "results.rerun:rerun", "Repeat points of earlier results and compare."),
    "up": Verb("Network", "running.up:up", "Build and program a network, and keep it up until Ctrl-C."),
    "ps": Verb("Network", "running.ps:ps", "List running networks, and switches started by hand."),
    "exec": Verb(
        "Network",
        "running.execute:execute",
        "Run a command or a shell on a host of a running network.",
        passes_options_on=True,
    ),
    "shell": Verb("Network", "running.shell:shell", "Open p4runtime-shell on a running switch."),
    "link": Verb("Network", "running.link:link", "Show or change the emulated links of a running network."),
    "clean": Verb("Network", "clean:clean", "Remove what killed runs left behind."),
    "launch": Verb("Jobs", "running.launch:app", "Run a program on each host, as mpirun and torchrun do."),
    "jobs": Verb("Jobs", "running.jobs:jobs", "List the jobs on a running network, or revoke a lease."),
    "top": Verb("Jobs", "running.top:top", "Watch the jobs, switches and links of a running network."),
    "why": Verb("Jobs", "running.why:why", "Explain what a job is waiting for, or what makes it slow."),
    "allreduce": Verb(
        "Jobs", "running.allreduce:allreduce", "All-reduce vectors on a running network; check every sum."
    ),
    "play": Verb("P4", "programs.play:play", "Try P4 programs in the browser, packet by packet."),
    "compile": Verb(
        "P4", "programs.compile:compile_program", "Compile a P4_16 program to BMv2 JSON and P4Info."
    ),
    "lint": Verb("P4", "programs.lint:lint", "Find what a hardware pipeline cannot run, and mistakes."),
    "format": Verb("P4", "programs.format:format_programs", "Lay out P4 programs in fanin's style."),
    "lsp": Verb("P4", "programs.lsp:lsp", "Answer an editor's questions about P4 programs."),
    "stf": Verb("P4", "programs.stf:stf", "Run an STF test on a program."),
    "diff": Verb("P4", "programs.diff:diff", "Compare compilers and switches on one program."),
    "trace": Verb("P4", "programs.trace:trace", "Trace packets through the parser, tables and actions."),
    "packet": Verb("P4", "running.packet:packet", "Send one packet through a running switch and trace it."),
    "tables": Verb("P4", "running.tables:tables", "Show the table entries of a running switch."),
    "counters": Verb("P4", "running.counters:counters", "Show the counters of a running switch."),
    "shims": Verb("P4", "programs.shims:shims", "Write p4c, simple_switch and other commands of courses."),
    "course": Verb("P4", "programs.course:course", "Prepare an environment in which P4 courses run."),
    "bench": Verb("Maintainers", "bench:bench", "Measure the speed of switches, all-reduces and simulation."),
    "validate": Verb(
        "Maintainers", "validate:validate", "Check virtual time against live runs, models and papers."
    ),
    "soak": Verb("Maintainers", "soak:soak", "Check the protocol on random scenarios with faults."),
    "fuzz": Verb(
        "Maintainers", "programs.fuzz:fuzz", "Run random P4 programs and packets under AddressSanitizer."
    ),
}


def load(name: str) -> Any:
    """Import a verb and return its command, with the commands below it if it has any."""
    verb = VERBS[name]
    found = resolve_name(f"fanin.verbs.{verb.place}")
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer(add_completion=False)
        found.command(name, context_settings={"ignore_unknown_options": verb.passes_options_on})(function)
    command = get_command(found)
    for each in (command, *getattr(command, "commands", {}).values()):
        each.help = _laid_out(each.help or "")
        if each.callback is not None:
            each.callback = _interruptible(each.callback)
    return command


def _interruptible(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a verb clean up after Ctrl-C, SIGTERM and SIGHUP, which ended the process at once before it began."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        from fanin.testbed.sandbox import raise_dropped_interrupts, stop, stop_signals

        raise_dropped_interrupts()
        before = {number: signal.signal(number, stop) for number in stop_signals() - {signal.SIGINT}}
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return function(*arguments, **options)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return call


def _laid_out(text: str) -> str:
    """Return a docstring as markup in which lines of prose are joined, and lines of examples are kept."""
    from rich.markup import escape  # not above: the list of verbs does without

    paragraphs = []
    for paragraph in cleandoc(text).split("\n\n"):
        first, *lines = escape(paragraph).splitlines()
        if (
            first == "Examples:"
        ):  # typer removes the spaces at the beginning of a line, unless they are in markup
            paragraphs.append("\n".join([first, *(f"[cyan]  {line.strip()}[/]" for line in lines)]))
        else:
            paragraphs.append(" ".join([first, *lines]))
    return "\n\n".join(paragraphs)


_COMPLETION = {
    "install_completion": "Set up completion for your shell.",
    "show_completion": "Print the completion script.",
}


# Errors of a file or folder that was named.
_OF_A_NAME = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EROFS,
)


class _Verbs(TyperGroup):
    """The group that lists the verbs from their table, and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            name: TyperCommand(name, help=verb.summary, rich_help_panel=verb.panel)
            for name, verb in VERBS.items()
        }

    def get_params(self, ctx: Any) -> list[Any]:
        found = super().get_params(ctx)
        for parameter in found:
            if isinstance(parameter, TyperOption) and parameter.name in _COMPLETION:
                parameter.help = _COMPLETION[parameter.name]  # typer's own texts take two and three lines
        return found

    def format_help(self, ctx: Any, _formatter: Any) -> None:
        """Print the panels. Typer's own printer imports a Markdown parser, which takes half the time of --help."""
        from rich.markup import escape
        from rich.panel import Panel
        from rich.table import Table

        from fanin.console import Terminal

        terminal = Terminal()
        terminal.print(f"\n [bold yellow]Usage:[/] {escape(self.get_usage(ctx).removeprefix('Usage: '))}")
        terminal.print(f"\n {self.help}\n", highlight=False)
        panels: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                panels["Options"].append(record)
        for name, verb in VERBS.items():
            panels.setdefault(verb.panel, []).append((name, verb.summary))
        for title, lines in panels.items():
            table = Table.grid(padding=(0, 2))
            table.add_column(style="bold cyan", no_wrap=True, width=max(len(name) for name, _ in lines))
            table.add_column()
            for name, text in lines:
                table.add_row(name, text)
            terminal.print(Panel(table, title=title, title_align="left", border_style="dim"), highlight=False)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, _, rest = super().resolve_command(ctx, args)
        return name, name and load(name), rest

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.filename is None or error.errno not in _OF_A_NAME:
                raise
            # Options check the files that are read. Files and folders that are written may still be refused: below
            # /proc, for instance, root gets FileNotFoundError.
            say(f"fanin: {error.filename}: {error.strerror}", err=True)
            raise typer.Exit(1) from None
        except RuntimeError as error:
            if not str(error).startswith("Symlink loop"):  # Path.resolve() raises no OSError there
                raise
            say(f"fanin: {error}", err=True)
            raise typer.Exit(1) from None


_WELCOME = """fanin runs in-network aggregation on this machine. Begin with these three steps:

  fanin doctor    check whether this machine can run it
  fanin demo      train a small model with in-network aggregation
  fanin lesson    learn from short experiments

To learn P4 in exercises with tests and hints, type: fanin lab
For all commands, type: fanin --help
For the options and examples of a command: fanin COMMAND --help
The documentation begins at docs/README.md."""

app = typer.Typer(
    name="fanin",
    cls=_Verbs,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # not above: the list of verbs does without

        from fanin.experiments.results.provenance import commit

        clone = commit()
        say(f"fanin {version('fanin')}" + (f" (commit {clone})" if clone else ""))
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Run in-network aggregation and P4 programs on one machine."""
    if context.invoked_subcommand is None:
        say(_WELCOME)
        raise typer.Exit(2)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Rich fills lines up to the width: with a hundred million columns, help takes half a minute.
_MOST_COLUMNS = 9_999


def _open_streams() -> None:
    """Open those of standard input, output and error that are closed (`fanin … >&-`) on /dev/null.

    Otherwise the next file that is opened gets the number of the closed one, and what is printed goes into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115


def _limit_columns() -> None:
    """Ignore a width in COLUMNS that is not a number, and limit it to what a terminal may have."""
    columns = os.environ.get("COLUMNS", "")
    if not (columns.isascii() and columns.isdigit()):
        os.environ.pop("COLUMNS", None)  # Rich takes any Unicode digit for a number
    elif len(columns) > len(str(_MOST_COLUMNS)):
        os.environ["COLUMNS"] = str(_MOST_COLUMNS)


def main() -> None:
    """Run the command line."""
    collect_seldom()
    _open_streams()
    _limit_columns()
    if locale.getencoding().lower().replace("-", "") != "utf8" and not sys.flags.utf8_mode:
        # Files are in UTF-8, whatever the locale says, here and in the processes that this one starts.
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{path}:/usr/sbin:/sbin"  # where Debian keeps tc and ethtool, for root only
    if memory_limit() is not None:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each thread reserves memory, or ends the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="namereplace")  # a terminal may have no ✓, which becomes \N{CHECK MARK}
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # if Python does it at its end, an error is a traceback and exit status 120
    except Exception as error:
        if message := out_of_memory(error):
            sys.exit(f"fanin: {message}")
        if not isinstance(error, OSError) or error.errno not in _NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the rest of its buffer
        sys.exit(f"fanin: cannot write {error.filename or 'the output'}: {error.strerror}")
