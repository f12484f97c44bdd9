"""Switches and workers whose packets stay in C have the history of those for which Python is called, byte for byte."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History, VirtualNetwork
from fanin.simulator.fabric import Cluster
from fanin.simulator.hosts.stations import PeerPort, SwitchPort
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.recovery import Recovery
from tests.simulator.event_loop import anything
from tests.simulator.event_loop.random_clusters import between_hosts, random_case
from tests.sizes import sized

Vectors = Sequence[Sequence[NDArray[np.float32]]]
Stalls = Sequence[tuple[float, float]]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("between", [False, True], ids=["in the network", "between hosts"])
def test_workers_in_c_have_the_same_history(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, *, between: bool
) -> None:
    in_c = in_all = again = 0
    for seed in range(sized(6, 100 if between else 12)):
        spec, inputs, stalls = random_case(seed)
        spec = between_hosts(spec, seed) if between else spec

        def run(spec: ClusterSpec, inputs: Vectors, stalls: Stalls) -> tuple[Cluster, list[object]]:
            history = History()
            cluster = Cluster(spec, switch, inputs, observer=history)
            for stall in stalls:
                cluster.network.stall("h1", *stall)
            assert cluster.run(limit=10.0)
            cluster.network.run(limit=11.0)
            stations = cluster.stations
            facts: list[object] = [
                history.digest,
                cluster.network.wakes,
                +cluster.network.faults,
                [station.worker.statistics for station in stations],
                [(station.began, station.ended, station.not_ours) for station in stations],
                [[output.tobytes() for output in station.outputs] for station in stations],
            ]
            return cluster, facts

        woken = Counter[str]()
        with monkeypatch.context() as context:
            in_python_alone = VirtualNetwork._run_station

            def counted(self: VirtualNetwork, host: int, *, taken: bool) -> None:
                woken["python"] += 1  # noqa: B023
                in_python_alone(self, host, taken=taken)  # noqa: B023

            context.setattr(VirtualNetwork, "_run_station", counted)
            cluster, ours = run(spec, inputs, stalls)
        with monkeypatch.context() as context:
            for port in (SwitchPort, PeerPort):
                context.setattr(port, "compiled", None)
            _, theirs = run(spec, inputs, stalls)
        assert ours == theirs, spec
        if between or not cluster.checksums:  # Python makes those of packets to switches
            in_all += cluster.network.wakes
            in_c += cluster.network.wakes - woken["python"]
        again += sum(station.worker.statistics.retransmissions for station in cluster.stations)
    assert in_c > in_all / 2
    assert again


@pytest.mark.long
@pytest.mark.slow
def test_whatever_programs_and_hosts_do_the_history_is_the_same() -> None:
    program = anything.load()
    for seed in range(sized(20, 40)):
        ours, theirs = (anything.run(program, seed, in_python=called) for called in (False, True))
        assert ours == theirs, seed


class Shouter:
    """Sends one frame of `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size

    def receive(self, frames: NDArray[np.uint8], lengths: NDArray[np.int64], now: float) -> None:
        pass

    def frames_to_send(self, now: float) -> list[NDArray[np.uint8]]:  # noqa: ARG002 - see Station
        return [np.zeros((1, self.size), np.uint8)]

    def deadline(self) -> None:
        return None


def test_a_frame_that_is_too_long_is_refused(switch: Engine) -> None:
    topology = leaf_spine(0, 1, 2)
    network = VirtualNetwork(
        topology, {"leaf1": switch.new_instance()}, {"h1": Shouter(129)}, longest_frame=100
    )
    network.wake("h1", 0.0)
    with pytest.raises(ValueError, match="a frame of 129 bytes"):
        network.run()


def test_a_program_that_is_refused_leaves_the_one_before_alone(switch: Engine) -> None:
    """C goes on with its memory."""
    program = switch.new_instance()
    kept = weakref.ref(program)
    network = VirtualNetwork(leaf_spine(0, 1, 2), {"leaf1": program}, {"h1": Shouter(100)})
    del program
    with pytest.raises(TypeError, match="object is not a switch program"):
        network.replace_switch("leaf1", object())  # type: ignore[arg-type]
    gc.collect(1)  # the oldest generation has what all tests before have left
    assert kept() is not None


def test_a_frame_that_no_program_has_room_for_is_refused(switch: Engine) -> None:
    programs = {"leaf1": switch.new_instance()}
    with pytest.raises(
        ValueError, match="longest_frame: 65664 bytes; a switch program accepts at most 65600"
    ):
        VirtualNetwork(leaf_spine(0, 1, 2), programs, {}, longest_frame=65_601)
    network = VirtualNetwork(leaf_spine(0, 1, 2), programs, {"h1": Shouter(65_600)}, longest_frame=65_600)
    network.wake("h1", 0.0)
    assert not network.run()
    assert network.hops == 1


@pytest.mark.parametrize("patience", [1e5, 1e9, math.inf])  # seconds; int64 holds 9.2e6, in picoseconds
def test_a_timer_of_days(switch: Engine, patience: float) -> None:
    recovery = Recovery(initial_rto=patience, max_rto=patience, give_up=patience)
    spec = ClusterSpec(leaf_spine(0, 1, 2, rate=10**10), window=8, recovery=recovery)
    inputs = [[np.ones(5000, np.float32)] * 2]
    cluster = Cluster(spec, switch, inputs)
    assert cluster.run(limit=1e-3)
    assert not cluster.network.run()
    assert cluster.network.wakes < 1000
