"""`fanin launch`: a program on the hosts of a network, one process per rank."""

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

app = typer.Typer(help="Run a program on each host, as mpirun and torchrun do.", add_completion=False)


# All words after the name of the program belong to the program, options too.
@app.command(context_settings={"allow_interspersed_args": False})
def launch(
    program: Annotated[
        list[str],
        typer.Argument(help="Python script (.py) or any command, and its arguments"),
    ],
    ranks: Annotated[
        int | None,
        typer.Option(
            "--workers", "-n", min=1, help="Number of processes, on the first hosts; all hosts by default"
        ),
    ] = None,
    per_host: Annotated[
        int,
        typer.Option(
            min=1, help="Processes on each host, whose arrays are summed there before they go to the network"
        ),
    ] = 1,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder for rank-0.out, rank-0.err, …; without it, lines are printed after their rank",
        ),
    ] = None,
    options: Annotated[
        str | None,
        typer.Option(
            "--up",
            metavar="OPTIONS",
            help="Start a network with these options of fanin up, such as '--leaves 1 --spines 0'",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Name of the job; the program's name and a number by default"),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Slots to request on each switch; by default, as many as the links need",
        ),
    ] = None,
    min_workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Continue without failed processes as long as this many remain",
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            min=0,
            help="Restarts of a failed process, which joins again at comm.regroup() (with --min-workers)",
        ),
    ] = 0,
    supervisor: Network = None,
) -> None:
    """Run a program on each host, as mpirun and torchrun do.

    The environment of each process has RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. In a Python script,
    fanin.init() returns a communicator with allreduce, broadcast and more (docs/how-to/calls.md). Rank 0 gets the
    standard input.

    The program runs on the network that is running. With --up, or if no network is running, a new one is started for
    it. The first process that fails ends all others, and fanin launch exits with its status; with --min-workers, this
    happens when too few processes remain. Ctrl-C ends all processes.

    Examples:
        fanin launch train.py
        fanin launch --job second --slots 64 train.py
    """
    if options is not None and supervisor is not None:
        raise typer.BadParameter(
            "give either --up to start a network or --network to use a running one", param_hint="--up"
        )
    if min_workers is not None and ranks is not None and min_workers > ranks:
        raise typer.BadParameter(f"{min_workers} is more than --workers {ranks}", param_hint="--min-workers")
    if restarts and min_workers is None:
        raise typer.BadParameter(
            "only a job that continues without failed processes can restart them: give --min-workers as well",
            param_hint="--restarts",
        )
    if ranks is not None and ranks % per_host:
        raise typer.BadParameter(f"{ranks} is no multiple of --per-host {per_host}", param_hint="--workers")
    if min_workers is not None and per_host > 1:
        raise typer.BadParameter(
            "a job that continues without failed processes has one on each host: leave --per-host out",
            param_hint="--min-workers",
        )
    wanted = None if ranks is None else ranks // per_host
    argv = _command(program)
    name = job or _name_after(program[0], os.getpid())
    if not is_name(name):
        raise typer.BadParameter(
            f"the name of a job has at most {MAX_NAME} characters, all of them printable", param_hint="--job"
        )
    shape = _usual_network(wanted) if options is None else _up_options(options)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    with failing("launch", NetworkError, OSError, KeyboardInterrupt):
        if options is None and (supervisor is not None or running_networks()):
            network = find_network(supervisor=supervisor)
            status = _run(network, wanted, per_host, argv, name, slots, output, min_workers, restarts)
        else:
            with own_network(shape) as network:
                status = _run(network, wanted, per_host, argv, name, slots, output, min_workers, restarts)
    raise typer.Exit(status)


def _name_after(program: str, number: int) -> str:
    """Return a name for a job: the program's name, shortened if it is too long, and a number."""
    ending = f"-{number}"
    return f"{printable(Path(program).name)[: MAX_NAME - len(ending)]}{ending}"


def _command(program: list[str]) -> list[str]:
    if not program[0].endswith(".py"):
        return program
    if not Path(program[0]).is_file():
        raise typer.BadParameter(f"{program[0]}: no such file in {Path.cwd()}", param_hint="PROGRAM")
    return [sys.executable, *program]


def _run(
    network: RunningNetwork,
    wanted: int | None,
    per_host: int,
    argv: list[str],
    job: str,
    slots: int | None,
    output: Path | None,
    min_workers: int | None,
    restarts: int,
) -> int:
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.testbed.interrupt import run_until_interrupted
    from fanin.testbed.job_service_client import JobServiceClient
    from fanin.testbed.launch import Launch, run

    hosts = list(network.hosts)
    if wanted is not None and wanted > len(hosts):
        raise NetworkError(
            f"the network has {len(hosts)} hosts, too few for {wanted * per_host} processes; "
            f"--up '{shlex.join(_usual_network(wanted))}' starts a larger one"
        )

    def check() -> None:
        if not network.run.alive:
            raise NetworkError("the network has ended")

    try:
        return run_until_interrupted(
            run(
                Launch(network, hosts[:wanted], argv, job, slots, output, min_workers, restarts, per_host),
                check,
                lambda what: complain("launch", what),
                lambda host: JobServiceClient(network.run).absent(job, host),
            )
        )
    except BrokenPipeError:  # the reader of the output has closed it
        return 128 + signal.SIGPIPE


def _usual_network(hosts: int | None) -> list[str]:
    """Return options of fanin up for this many hosts: its two leaves need an even number of them."""
    return [] if hosts is None else ["--workers", str(hosts + hosts % 2)]


def _up_options(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}", param_hint="--up") from None


def _exit_on_signal(number: int, _frame: object) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise SystemExit(128 + number)
