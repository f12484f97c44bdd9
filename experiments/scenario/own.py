"""What a user brings in the place of ours, and whether the parts fit together: before anything is started."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from controller.errors import ProgramMismatchError
from controller.plan import Plan, plan_aggregation, plan_forwarding, plan_loss
from controller.requirements import check_program
from controller.telemetry import cells_read
from controller.tree import Job, aggregation_tree
from experiments.scenario.compilers import PROGRAM, CompiledProgram, compile_program
from experiments.scenario.settings import Settings
from experiments.scenario.tools import Compiler
from topologies.model import Topology

_compiled = cache(compile_program)


def program_of(settings: Settings) -> CompiledProgram:
    """The program that a point's switches run; compiled once in a process.

    Raises:
        CompileError, ToolError: there is none. ProgramMismatchError: it lacks what the controller needs for this point.
    """
    program = _compiled(settings.program or PROGRAM, settings.compiler)
    if settings.program:
        network, live = settings.network, settings.world == "live"
        ports = {port for switch in network.switches for port in network.interfaces(switch.name)}
        check_fits(
            settings.program,
            program,
            network,
            settings.members if settings.algorithm == "in-network" else (),
            loss=live and settings.links.loss > 0,
            cells=cells_read(sorted(ports) if live else ()),  # links in virtual time count for themselves
        )
    return program


def program_of_network(
    path: Path | None, compiler: Compiler, network: Topology, *, counted: bool = False
) -> CompiledProgram:
    """The program of a network on which any of its hosts may form jobs; counted: what it does is counted.

    Raises:
        CompileError, ToolError, ProgramMismatchError: see program_of.
    """
    program = _compiled(path or PROGRAM, compiler)
    if path:
        hosts = [host.name for host in network.ranked_hosts]
        check_fits(path, program, network, hosts, cells=cells_read(()) if counted else ())
    return program


def check_fits(
    path: Path,
    program: CompiledProgram,
    network: Topology,
    hosts: Sequence[str],
    *,
    loss: bool = False,
    cells: Iterable[tuple[str, int]] = (),
) -> None:
    """Check that a program has what the controller writes on `network`, for leases of `hosts` (none: no leases).

    loss: whether the program is to lose packets. cells: of counters, which are read.

    Raises:
        ProgramMismatchError: with all that it lacks.
    """
    plans: dict[str, Plan] = {"routes": plan_forwarding(network)}
    if hosts:
        plans["leases"] = plan_aggregation(network, aggregation_tree(network, Job(1, tuple(hosts))))
    if loss:
        plans["loss on links"] = plan_loss(network, 0.5, seed=0)
    try:
        check_program(program.p4info, _compiled(PROGRAM, "embedded").p4info, plans, cells)
    except ProgramMismatchError as error:
        lines = "".join(f"\n  {line}" for line in str(error).splitlines())
        raise ProgramMismatchError(
            f"{path} lacks what the controller writes and reads:{lines}\n"
            f"Give it these; {PROGRAM} has them all, to copy from."
        ) from None


def digests(settings: Settings) -> dict[str, Any]:
    """Columns of results: of what was brought, by which a change of it is noticed. None: ours."""
    program = settings.program and _compiled(settings.program, settings.compiler).device_config
    return {"program_sha256": program and hashlib.sha256(program).hexdigest()}
