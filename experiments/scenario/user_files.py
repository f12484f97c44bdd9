"""The user's own programs, controllers and workers, and checks that they fit together before anything starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from fanin.controller.errors import ControllerError, ProgramMismatchError
from fanin.controller.plan import PathChoice, Plan, SwitchPlan
from fanin.controller.planner import planner_of
from fanin.controller.requirements import PROGRAM, check_program
from fanin.controller.telemetry import cells_read
from fanin.controller.tree import Job, Tree
from fanin.experiments.protocol import OURS, Protocol, folder_of, load, make_worker_of
from fanin.experiments.scenario.compilers import CompiledProgram, compile_program
from fanin.experiments.scenario.settings import FILES, Settings
from fanin.experiments.scenario.tools import Compiler
from fanin.experiments.schedule_file import is_file
from fanin.native.python_file import PythonFileError
from fanin.topologies.model import Topology

_TRACES = ("traffic", "arrivals")  # tables with a key trace
DIGESTS = (
    *(f"{name}_sha256" for name in FILES),
    *(f"{name}_trace_sha256" for name in _TRACES),
)  # columns of results

_compiled = cache(compile_program)


def program_of(settings: Settings) -> CompiledProgram:
    """Return the program that a point's switches run; it is compiled once in a process.

    Raises:
        CompileError: If our compiler rejects it.
        ToolError: If it cannot be read, or p4c is not installed or rejects it.
        ProgramMismatchError: If it lacks what the controller needs for this point.
        ControllerError: If the user's controller fails.
    """
    protocol = settings.implementation
    make_worker_of(protocol.worker)  # reports errors in its file before anything starts
    program = _compiled(protocol.program, settings.compiler)
    if not protocol.ours or protocol.controller or settings.program:
        network, live = settings.network, settings.world == "live"
        plans = _Plans(protocol.controller, network, settings.paths)
        if settings.algorithm == "in-network":
            plans.add_leases(settings.members)
        if live and settings.links.loss:
            plans.add_loss()
        ports = {port for switch in network.switches for port in network.neighbours(switch.name)}
        # In virtual time, links count packets themselves.
        plans.check(protocol.program, program, cells_read(sorted(ports) if live else ()))
    return program


def program_of_network(
    path: Path | None,
    compiler: Compiler,
    network: Topology,
    controller: Path | None = None,
    *,
    counted: bool = False,
) -> CompiledProgram:
    """Return the program of a network on which any hosts may form jobs.

    Args:
        path: The program; None: ours.
        compiler: The P4 compiler.
        network: The network.
        controller: A file with the user's controller; None: ours.
        counted: Whether the program's counters are read.

    Raises:
        CompileError: See program_of.
        ToolError: See program_of.
        ProgramMismatchError: See program_of.
        ControllerError: See program_of.
    """
    program = _compiled(path or PROGRAM, compiler)
    if path or controller:
        plans = _Plans(controller, network)
        try:
            plans.add_leases([host.name for host in network.ranked_hosts])
        except ControllerError as error:
            if isinstance(error.__cause__, PythonFileError):
                raise
            # Otherwise the controller refuses such a job, as it would if hosts formed one.
        plans.check(path, program, cells_read(()) if counted else ())
    return program


class _Plans:
    """The entries that a controller would write to a network's switches, by purpose; initially its routes."""

    def __init__(self, controller: Path | None, network: Topology, paths: PathChoice = "ecmp") -> None:
        self._controller = controller
        self._planner = planner_of(controller, paths)
        self._network = network
        self._plans: dict[str, Plan] = {}
        self._add("routes", "plan_forwarding", self._planner.plan_forwarding(network))

    def add_leases(self, hosts: Sequence[str]) -> None:
        """Add the entries for a job of all these hosts."""
        tree = self._planner.aggregation_tree(self._network, Job(1, tuple(hosts)))
        if not isinstance(tree, Tree):
            raise ControllerError(
                f"{self._controller}: aggregation_tree() returns {tree!r}, must return a fanin.controller.tree.Tree"
            )
        self._add("leases", "plan_aggregation", self._planner.plan_aggregation(self._network, tree))

    def add_loss(self) -> None:
        """Add the entries for loss on all links."""
        self._add("loss on links", "plan_loss", self._planner.plan_loss(self._network, 0.5, 0))

    def _add(self, purpose: str, function: str, plan: Plan) -> None:
        there = [switch.name for switch in self._network.switches]
        if not isinstance(plan, Mapping) or not all(isinstance(part, SwitchPlan) for part in plan.values()):
            wanted = "a mapping from switches' names to fanin.controller.plan.SwitchPlan"
            raise ControllerError(f"{self._controller}: {function}() returns {plan!r}, must return {wanted}")
        if unknown := sorted(set(plan) - set(there)):
            raise ControllerError(
                f"{self._controller}: {function}() plans for {', '.join(unknown)}; there are {', '.join(there)}"
            )
        self._plans[purpose] = plan

    def check(self, path: Path | None, program: CompiledProgram, cells: Iterable[tuple[str, int]]) -> None:
        """Check that a program has everything that these plans write.

        Args:
            path: The program's file; None: ours.
            program: The compiled program.
            cells: Counters and indices that are read.

        Raises:
            ProgramMismatchError: If something is missing; the message lists everything.
        """
        try:
            check_program(program.p4info, _compiled(PROGRAM, "embedded").p4info, self._plans, cells)
        except ProgramMismatchError as error:
            lines = "".join(f"\n  {line}" for line in str(error).splitlines())
            raise ProgramMismatchError(
                f"{path or PROGRAM} lacks what the controller{f' {self._controller}' if self._controller else ''} "
                f"writes and reads:{lines}\n"
                f"Add these to it ({PROGRAM} has all that our controller uses), or use a controller that needs others."
            ) from None


def _contents(protocol: Protocol, settings: Settings) -> bytes:
    """Return what a protocol's folder makes of a run: its program and its Python file."""
    return _compiled(protocol.program, settings.compiler).device_config + protocol.file.read_bytes()


def digests(settings: Settings) -> dict[str, Any]:
    """Return columns of results with a digest of each of the user's files, which show when one changes; None: ours."""
    found: dict[str, Any] = {}
    for name in FILES:
        path: Path | None = getattr(settings, name)
        content = None
        if name == "protocol":
            folder = folder_of(settings.protocol)
            content = None if settings.protocol == OURS else _contents(load(folder), settings)
        elif name == "algorithm":
            content = Path(settings.algorithm).read_bytes() if is_file(settings.algorithm) else None
        elif path and name == "program":  # and what it includes
            content = _compiled(path, settings.compiler).device_config
        elif path:
            content = path.read_bytes()
        found[f"{name}_sha256"] = content and hashlib.sha256(content).hexdigest()
    for name in _TRACES:
        table = getattr(settings, name)
        trace: Path | None = table.trace if table else None
        found[f"{name}_trace_sha256"] = trace and hashlib.sha256(trace.read_bytes()).hexdigest()
    return found
