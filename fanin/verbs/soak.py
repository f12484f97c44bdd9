"""`fanin soak`: random scenarios with faults, each checked."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failing
from fanin.native.text import counted
from fanin.options import ControllerFile, Program, ProtocolName, ResultsFolder
from fanin.output import say
from fanin.temporary_network import FANIN

if TYPE_CHECKING:
    from fanin.assurance.soak.campaign import Soak
    from fanin.assurance.soak.live import LiveOutcome, LiveSoak

SCENARIOS_A_WRITE = 100  # so that an interrupted run keeps its findings


def soak(
    seeds: Annotated[int, typer.Option(min=1, help="Number of scenarios")] = 200,
    first_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the first scenario; the next ones count up")
    ] = 0,
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Run demo, up and launch on live networks, and kill or pause a random process of theirs",
        ),
    ] = False,
    protocol: ProtocolName = None,
    program: Program = None,
    controller: ControllerFile = None,
    results: ResultsFolder = Path("results/soak"),
) -> None:
    """Check the protocol on random scenarios with faults.

    The scenarios run in virtual time, and all invariants are checked; for another --protocol than fanin's own, these
    are its own, and only the faults that it survives occur. With --live, the commands demo, up and launch
    run instead; one of their processes is killed, ended or paused at a random moment, and nothing may hang or be left
    behind. A seed repeats its scenario, or its moment, process and signal.

    Examples:
        fanin soak --seeds 1000
        fanin soak --live --seeds 200
    """
    if live:
        if program is not None or controller is not None or protocol is not None:
            raise typer.BadParameter(
                "tests the commands with fanin's own protocol only: leave --protocol, --program and --controller out",
                param_hint="--live",
            )
        _soak_live(first_seed, seeds, results)
        return
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.assurance.soak.campaign import soak as run_soak
    from fanin.controller.errors import ControllerError
    from fanin.experiments.protocol import OURS, ProtocolError, protocol_of
    from fanin.experiments.scenario.tools import ToolError
    from fanin.experiments.scenario.user_files import program_of_network
    from fanin.native.python_file import PythonFileError
    from fanin.p4compiler import CompileError
    from fanin.progress import Steps
    from fanin.topologies.shapes import leaf_spine

    named = (protocol or OURS, program, controller)
    with failing("soak", ProtocolError, PythonFileError, ToolError, CompileError, ControllerError):
        chosen = protocol_of(*named)
        # The smallest network that has every feature of the random ones.
        program_of_network(chosen.program, "embedded", leaf_spine(2, 2, 2), chosen.controller, counted=True)
    with Steps("scenarios", seeds) as progress:
        shown = 0

        def show(so_far: Soak) -> None:
            nonlocal shown
            failed = f"{len(so_far.failures)} failed" if so_far.failures else ""
            progress.advance(so_far.scenarios - shown, failed)
            shown = so_far.scenarios
            if so_far.scenarios % SCENARIOS_A_WRITE == 0:
                so_far.write(results)

        with failing("soak", KeyboardInterrupt):
            done = run_soak(first_seed, seeds, show, *named)
    done.write(results)
    faults = ", ".join(f"{count} {kind}" for kind, count in done.faults.most_common())
    say(
        f"{counted(done.scenarios, 'scenario')}, {counted(done.packet_hops, 'packet-hop')}, {done.seconds:.0f} s; "
        f"{faults or 'no faults'}"
    )
    if done.failures:
        explain(done, results, *named)
        raise typer.Exit(1)
    say(f"Nothing wrong. {results}/summary.json")


def _soak_live(first_seed: int, seeds: int, results: Path) -> None:
    """Print each fault and how the command ended."""
    from fanin.assurance.soak.live import soak_live
    from fanin.progress import Steps

    def show(so_far: LiveSoak, outcome: LiveOutcome) -> None:
        progress.advance()
        say(f"seed {outcome.fault.seed}: {outcome}")
        for violation in outcome.violations:
            say(f"  {violation}", err=True)
        if outcome.violations:
            say(f"  its output:\n{outcome.said}", err=True)
            say(f"  repeat: fanin soak --live --first-seed {outcome.fault.seed} --seeds 1", err=True)
        so_far.write(results)

    with failing("soak", KeyboardInterrupt), Steps("commands", seeds) as progress:
        done = soak_live(first_seed, seeds, FANIN, show)
    if done.failures:
        raise typer.Exit(1)
    say(f"Nothing wrong; no command took longer than {done.longest:.0f} s to end. {results}/summary.json")


def explain(
    done: Soak,
    results: Path,
    protocol: str | None = None,
    program: Path | None = None,
    controller: Path | None = None,
) -> None:
    """Print the failures, shrink the first one, and write a trace of it."""
    from fanin.assurance.soak.generate import scenario_for
    from fanin.assurance.soak.run import run_scenario
    from fanin.assurance.soak.shrink import shrink
    from fanin.assurance.soak.trace import Trace
    from fanin.experiments.protocol import OURS, protocol_of
    from fanin.simulator.fabric import load_switch

    for failure in done.failures[:10]:
        say(f"seed {failure.seed}: {failure.violations[0]}", err=True)
    seed = done.failures[0].seed
    chosen = protocol_of(protocol or OURS, program, controller)
    switch = load_switch(chosen.program)
    smallest = shrink(
        scenario_for(seed, chosen),
        lambda scenario: bool(run_scenario(scenario, switch, protocol=chosen).violations),
    )
    path = results / f"trace-{seed}.txt"
    with path.open("w") as file:
        outcome = run_scenario(smallest, switch, observer=Trace(file, smallest), protocol=chosen)
    say(f"\nseed {seed}, shrunk to: {smallest}", err=True)
    for violation in outcome.violations:
        say(f"  {violation}", err=True)
    files = (("--protocol", protocol), ("--program", program), ("--controller", controller))
    brought = "".join(f" {option} {shlex.quote(str(path))}" for option, path in files if path)
    say(f"its packets: {path}\nrepeat: fanin soak{brought} --first-seed {seed} --seeds 1", err=True)
