"""The event loop in C has the history of the one in Python, byte for byte."""

from __future__ import annotations

import gc
import math
import weakref
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History, VirtualNetwork, compiled
from fanin.simulator.compiled import CompiledNetwork, virtual_network
from fanin.simulator.fabric import Cluster, Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import Algorithm
from fanin.workers.recovery import Recovery
from tests.simulator.event_loop import anything
from tests.simulator.event_loop.random_clusters import PAUSE, WATCHDOG, random_case
from tests.sizes import sized

Vectors = Sequence[Sequence[NDArray[np.float32]]]
Stalls = Sequence[tuple[float, float]]

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="no C compiler")


SEEDS = sized((*range(6), 15, 27, 31, 33), tuple(range(40)))  # those after the sixth meet what others do not


DOWN = 1e-5, 3e-5
WAYS = ((False, None), (True, DOWN), (True, None), (False, DOWN))  # the first two have each of them
ELEMENTS = sized(5_000, 8_000)


def in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "library", lambda: None)


@pytest.mark.long
@pytest.mark.slow
def test_random_scenarios_have_the_same_history(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: set[str] = set()
    for seed in SEEDS:
        scenario = draw_scenario(seed)
        histories = [History(), History()]
        outcomes = [run_scenario(scenario, switch, observer=histories[0])]
        with monkeypatch.context() as context:
            in_python(context)
            outcomes.append(run_scenario(scenario, switch, observer=histories[1]))
        assert outcomes[0] == outcomes[1], scenario
        assert histories[0].digest == histories[1].digest, scenario
        faults.update(outcomes[0].faults)
    assert faults >= {
        *("loss", "burst loss", "corruption", "duplication", "reordering", "queue drop", "stall"),
        *("pause", "switch restart", "registers lost", "grant again", "stranger", "mismatch"),
    }


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"ecn_bytes": 4000, "jitter": 3e-7},
        {"ecn_bytes": 4000, "ecn_max_bytes": 60_000, "ecn_probability": 0.3, "loss": 0.01},
        {"corruption": 0.02, "loss": 0.01},
        {"duplication": 0.05, "reordering": 0.1, "displacement": 1e-5},
        {"burst": {"begin": 0.01, "end": 0.3, "loss": 0.7}, "queue_bytes": 20_000},
        {"pause": {"xoff_bytes": 5000, "xon_bytes": 3000}, "ecn_bytes": 4000, "jitter": 3e-7},
        {"pause": PAUSE | {"watchdog": WATCHDOG}, "loss": 0.01},
        {"pause": PAUSE | {"watchdog": WATCHDOG | {"action": "forward"}}, "queue_bytes": 40_000},
    ],
)
@pytest.mark.parametrize(("priorities", "down"), WAYS[: sized(2, 4)])
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.long
@pytest.mark.slow
def test_a_link_does_the_same(
    switch: Engine,
    properties: dict[str, object],
    algorithm: Algorithm,
    priorities: bool,
    down: tuple[float, float] | None,
) -> None:
    """Below a narrow uplink, beside flows of another priority."""
    topology = leaf_spine(1, 2, 3, rate=10**10, properties=properties)
    spec = ClusterSpec(
        topology,
        hosts=("h1", "h2", "h4", "h5"),
        seed=5,
        algorithm=algorithm,
        priority=4,
        priorities=priorities,
    )

    def run(make_network: type[VirtualNetwork]) -> tuple[Cluster, str]:
        history = History()
        draw = np.random.default_rng(0)
        inputs = [[draw.standard_normal(ELEMENTS, dtype=np.float32) for _ in range(4)] for _ in range(2)]
        cluster = Cluster(spec, switch, inputs, observer=history, make_network=make_network)
        if down:
            cluster.network.cut("leaf1", "spine1", *down)
        beside = [FlowSpec(source="h3", destination=to, size=40_000) for to in ("h4", "h6")]
        Flows(cluster, beside, recovery=spec.recovery, priority=2)
        assert cluster.run(limit=10.0)
        cluster.network.run(limit=11.0)
        return cluster, history.digest

    ours, digest = run(CompiledNetwork)
    theirs, expected = run(VirtualNetwork)
    assert digest == expected
    assert ours.network.in_flight == theirs.network.in_flight == 0
    assert not down or ours.network.faults["loss"]
    assert +ours.network.faults == +theirs.network.faults
    assert (ours.network.hops, ours.network.wakes) == (theirs.network.hops, theirs.network.wakes)
    counts, others = ours.network.links.counts, theirs.network.links.counts
    for name in compiled._COUNTS:
        assert (getattr(counts, name) == getattr(others, name)).all()


def test_dctcp_as_a_scenario_has_it_does_the_same(switch: Engine) -> None:
    """Three flows to one host, by a link that pauses."""
    topology = leaf_spine(1, 2, 3, rate=10**10, properties={"pause": PAUSE, "ecn_bytes": 4000, "delay": 1e-6})
    flows = [FlowSpec(source=source, destination="h1", size=100_000) for source in ("h4", "h5", "h6")]

    def digest(congestion: Congestion, make_network: type[VirtualNetwork]) -> str:
        history = History()
        fabric = Fabric(topology, switch, observer=history, make_network=make_network)
        assert Flows(fabric, flows, recovery=Recovery(), congestion_control=congestion.control_of).run(1.0)
        return history.digest

    own = Congestion(
        gain=0.25, initial_alpha=0, min_window=1, initial_window=4, ssthresh=16, increase="always"
    )
    ours, theirs = (digest(own, network) for network in (CompiledNetwork, VirtualNetwork))
    assert ours == theirs != digest(Congestion(), CompiledNetwork)


@pytest.mark.long
@pytest.mark.slow
def test_workers_in_c_have_the_same_history(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    in_c = in_all = again = 0
    for seed in range(sized(6, 12)):
        spec, inputs, stalls = random_case(seed)

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
            in_python_alone = CompiledNetwork._run_station

            def counted(self: CompiledNetwork, host: int, *, taken: bool) -> None:
                woken["python"] += 1  # noqa: B023
                in_python_alone(self, host, taken=taken)  # noqa: B023

            context.setattr(CompiledNetwork, "_run_station", counted)
            cluster, ours = run(spec, inputs, stalls)
        with monkeypatch.context() as context:
            in_python(context)
            _, theirs = run(spec, inputs, stalls)
        assert ours == theirs, spec
        if not cluster.checksums:  # Python makes those
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
        ours, theirs = (anything.run(program, seed, kind) for kind in (CompiledNetwork, VirtualNetwork))
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
    network = virtual_network(
        topology, {"leaf1": switch.new_instance()}, {"h1": Shouter(129)}, longest_frame=100
    )
    network.wake("h1", 0.0)
    with pytest.raises(ValueError, match="a frame of 129 bytes"):
        network.run()


def test_a_switch_keeps_its_kind(switch: Engine) -> None:
    network = virtual_network(leaf_spine(0, 1, 2), {"leaf1": switch.new_instance()}, {})
    with pytest.raises(TypeError, match="object is not a C program"):
        network.replace_switch("leaf1", object())  # type: ignore[arg-type]


def test_a_program_that_is_refused_leaves_the_one_before_alone(switch: Engine) -> None:
    """C goes on with its memory."""
    program = switch.new_instance()
    kept = weakref.ref(program)
    network = virtual_network(leaf_spine(0, 1, 2), {"leaf1": program}, {"h1": Shouter(100)})
    del program
    with pytest.raises(TypeError):
        network.replace_switch("leaf1", object())  # type: ignore[arg-type]
    gc.collect()
    assert kept() is not None


def test_a_frame_that_no_program_has_room_for_is_refused(switch: Engine) -> None:
    programs = {"leaf1": switch.new_instance()}
    with pytest.raises(
        ValueError, match="longest_frame: 65664 bytes; a switch program accepts at most 65600"
    ):
        virtual_network(leaf_spine(0, 1, 2), programs, {}, longest_frame=65_601)
    network = virtual_network(leaf_spine(0, 1, 2), programs, {"h1": Shouter(65_600)}, longest_frame=65_600)
    network.wake("h1", 0.0)
    assert not network.run()
    assert network.hops == 1


@pytest.mark.parametrize("make_network", [CompiledNetwork, VirtualNetwork])
@pytest.mark.parametrize("patience", [1e5, 1e9, math.inf])  # seconds; int64 holds 9.2e6, in picoseconds
def test_a_timer_of_days(switch: Engine, make_network: type[VirtualNetwork], patience: float) -> None:
    recovery = Recovery(initial_rto=patience, max_rto=patience, give_up=patience)
    spec = ClusterSpec(leaf_spine(0, 1, 2, rate=10**10), window=8, recovery=recovery)
    inputs = [[np.ones(5000, np.float32)] * 2]
    cluster = Cluster(spec, switch, inputs, make_network=make_network)
    assert cluster.run(limit=1e-3)
    assert not cluster.network.run()
    assert cluster.network.wakes < 1000
