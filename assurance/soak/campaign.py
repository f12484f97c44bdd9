"""Many scenarios on all cores, and the summary of their faults."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import Outcome, run_scenario
from fanin.experiments.processes import fork_server
from fanin.experiments.protocol import OURS, Protocol, protocol_of
from fanin.native.files import write_json
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch


@dataclass(frozen=True, slots=True)
class Failure:
    """A scenario in which something was wrong."""

    seed: int
    violations: tuple[str, ...]


@dataclass(slots=True)
class Soak:
    """The scenarios run so far. `seconds` are of real time."""

    scenarios: int = 0
    packet_hops: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0

    def write(self, folder: Path) -> None:
        """Write summary.json into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = {
            "scenarios": self.scenarios,
            "packet_hops": self.packet_hops,
            "faults": dict(sorted(self.faults.items())),
            "violations": len(self.failures),
            "failures": [asdict(failure) for failure in self.failures],
            "seconds": self.seconds,
        }
        write_json(summary, folder / "summary.json")


_switch: Engine  # of each process of the pool
_protocol: Protocol


def _load(*named: Any) -> None:
    global _switch, _protocol
    # Signals for the group of processes are for the parent, which ends the pool, if need be with SIGTERM.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _protocol = protocol_of(*named)
    _switch = load_switch(_protocol.program)


def _run_seed(seed: int) -> tuple[int, Outcome]:
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # inputs with the largest values, and infinities
            return seed, run_scenario(scenario_for(seed, _protocol), _switch, protocol=_protocol)
    except Exception as error:
        error.add_note(f"while it ran the scenario of seed {seed}")
        raise


def soak(
    first_seed: int,
    seeds: int,
    progress: Callable[[Soak], None],
    protocol: str = OURS,
    program: Path | None = None,
    controller: Path | None = None,
) -> Soak:
    """Run the scenarios of `seeds` seeds on all cores.

    Args:
        first_seed: The first seed.
        seeds: Number of seeds.
        progress: Called after each scenario.
        protocol: The protocol of jobs in the network: a name, or the path of a folder.
        program: Another P4 program than the protocol's.
        controller: Another controller than the protocol's.
    """
    begun = time.monotonic()
    so_far = Soak()
    # Not forked from this process, which has threads.
    with ProcessPoolExecutor(
        min(len(os.sched_getaffinity(0)), seeds),
        fork_server(__name__),
        _load,
        (protocol, program, controller),
    ) as pool:
        try:
            for seed, outcome in pool.map(_run_seed, range(first_seed, first_seed + seeds), chunksize=1):
                so_far.scenarios += 1
                so_far.packet_hops += outcome.packet_hops
                so_far.faults += outcome.faults
                so_far.seconds = time.monotonic() - begun
                if outcome.violations:
                    so_far.failures.append(Failure(seed, outcome.violations))
                progress(so_far)
        except BaseException:
            # A second Ctrl-C while the processes end would leave them and this process waiting for one another.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            pool.shutdown(cancel_futures=True)  # map() does so only once it has submitted all seeds
            raise
    return so_far
