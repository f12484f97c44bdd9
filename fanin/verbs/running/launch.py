"""`fanin launch`: a program on the hosts of a network, a process for each rank."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fanin.cli_errors import complain, failing
from fanin.native.text import MAX_NAME, is_name, printable
from fanin.options import Network
from fanin.temporary_network import own_network
from fanin.testbed.running import RunningNetwork, find_network, running_networks
from fanin.topologies.errors import NetworkError

_SUMMARY = "Run a program on the hosts of a network, a process on each, as mpirun and torchrun do."
app = typer.Typer(help=_SUMMARY, add_completion=False)


# What follows the program's name is the program's, options too.
@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    program: Annotated[
        list[str],
        typer.Argument(help="a Python script (its name ends in .py) or any command, and its arguments"),
    ],
    processes: Annotated[
        int | None,
        typer.Option(
            "--workers", "-n", min=1, help="processes, on the first hosts", show_default="all hosts"
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="a folder for rank-0.out, rank-0.err, …; left out, each line is printed behind its rank",
        ),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            "--up",
            metavar="OPTIONS",
            help="make a network for it, with these options of fanin up, such as '--leaves 1 --spines 0'",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="the job's name on the network", show_default="the program's, and a number"),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="slots of each of its switches that the job asks for",
            show_default="what suits the links",
        ),
    ] = None,
    min_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="go on without processes that have failed, as long as so many are left",
            show_default="all",
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="with --min-workers: how often a process that has failed is started again, to join the others at "
            "their next comm.regroup()",
        ),
    ] = 0,
    supervisor: Network = None,
) -> None:
    """Run a program on the hosts of a network, a process on each, as mpirun and torchrun do.

    Each process finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT in its environment; in a Python script
    `fanin.init()` gives all-reduce, broadcast and the others (docs/how-to/launch.md). The network is the one that is
    up, or one made for it, with --up or if none is up. The first process that fails (or the one after which fewer than
    --min-workers are left) ends all others, and its exit status is launch's; Ctrl-C ends all. Rank 0 has launch's
    standard input.
    """
    if options is not None and supervisor is not None:
        raise typer.BadParameter(
            "either --up, which makes a network, or --network, which names one", param_hint="--up"
        )
    if min_workers is not None and processes is not None and min_workers > processes:
        raise typer.BadParameter(f"{min_workers} are more than {processes}", param_hint="--min-workers")
    if restarts and min_workers is None:
        raise typer.BadParameter(
            "only a job that goes on without a process can have it back: give --min-workers, too",
            param_hint="--restarts",
        )
    argv = _command(program)
    name = job or _name_after(program[0], os.getpid())
    if not is_name(name):
        raise typer.BadParameter(
            f"a job's name has at most {MAX_NAME} characters, all printable", param_hint="--job"
        )
    shape = _usual_network(processes) if options is None else _up_options(options)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with failing("launch", NetworkError, OSError, KeyboardInterrupt):
        if options is None and (supervisor is not None or running_networks()):
            network = find_network(supervisor=supervisor)
            status = _run(network, processes, argv, name, slots, output, min_workers, restarts)
        else:
            with own_network(shape) as network:
                status = _run(network, processes, argv, name, slots, output, min_workers, restarts)
    raise typer.Exit(status)


def _name_after(program: str, number: int) -> str:
    """A name for a job: its program's, as far as there is room for it, and a number."""
    ending = f"-{number}"
    return f"{printable(Path(program).name)[: MAX_NAME - len(ending)]}{ending}"


def _command(program: list[str]) -> list[str]:
    if not program[0].endswith(".py"):
        return program
    if not Path(program[0]).is_file():
        raise typer.BadParameter(f"there is no file {program[0]} in {Path.cwd()}", param_hint="PROGRAM")
    return [sys.executable, *program]


def _run(
    network: RunningNetwork,
    processes: int | None,
    argv: list[str],
    job: str,
    slots: int | None,
    output: Path | None,
    min_workers: int | None,
    restarts: int,
) -> int:
    # Not above: they take longer to import than the verb needs to refuse what it is asked.
    from fanin.testbed.interrupt import run_until_interrupted
    from fanin.testbed.job_service_client import JobServiceClient
    from fanin.testbed.launch import Launch, run

    hosts = list(network.hosts)
    if processes is not None and processes > len(hosts):
        raise NetworkError(
            f"the network has {len(hosts)} hosts, too few for {processes} processes; "
            f"--up '{shlex.join(_usual_network(processes))}' makes another one"
        )

    def check() -> None:
        if not network.run.alive:
            raise NetworkError("the network has ended")

    try:
        return run_until_interrupted(
            run(
                Launch(network, hosts[:processes], argv, job, slots, output, min_workers, restarts),
                check,
                lambda what: complain("launch", what),
                lambda host: JobServiceClient(network.run).absent(job, host),
            )
        )
    except BrokenPipeError:  # whoever read the output has seen enough
        return 128 + signal.SIGPIPE


def _usual_network(processes: int | None) -> list[str]:
    """What fanin up is to be told for so many: an even number of hosts spreads over its two leaves."""
    return [] if processes is None else ["--workers", str(processes + processes % 2)]


def _up_options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}", param_hint="--up") from None


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second one would keep the first from ending all
    raise SystemExit(128 + number)
