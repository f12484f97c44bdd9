"""Several cores have the results of one, byte for byte, and a mistake in how they share the work shows."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.engine.engine import Engine
from fanin.simulator import VirtualNetwork, compiled, network
from fanin.simulator.fabric import Cluster, Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.simulator.job_spec import ClusterSpec
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.recovery import Recovery
from tests.simulator.event_loop import random_flows
from tests.simulator.event_loop.mutants import Mutant, library_with
from tests.simulator.event_loop.random_clusters import between_hosts, random_case
from tests.sizes import sized
from tests.topologies.networks import networks

pytestmark = pytest.mark.slow


def on(cores: int, worth: int = 0) -> partial[VirtualNetwork]:
    return partial(VirtualNetwork, cores=cores, worth=worth)


def facts_of(fabric: Fabric) -> list[object]:
    net = fabric.network
    counts = {name: values.tolist() for name, values in asdict(net.links.counts).items()}
    state = {name: net.links.table[name].tolist() for name in ("free_at", "numbered", "joined")}
    return [
        *(counts, state, net.now, net.wakes, net.in_flight, +net.faults),
        *(net.overtaken.tolist(), net.wire_bytes.tolist(), net.queue_areas.tolist()),
        *(dict(fabric.drops()), dict(fabric.events())),
    ]


@pytest.mark.long
def test_flows_with_faults_pauses_and_priorities(switch: Engine) -> None:
    for seed in range(sized(8, 200)):
        one, several = (random_flows.run(switch, seed, observed=False, cores=cores) for cores in (1, 2))
        assert one == several, seed


@pytest.mark.long
@pytest.mark.parametrize("between", [False, True], ids=["in the network", "between hosts"])
def test_all_reduces_with_faults_pauses_and_priorities(switch: Engine, *, between: bool) -> None:
    barriers = 0
    for seed in range(sized(4, 60)):
        spec, inputs, stalls = random_case(seed)
        spec = between_hosts(spec, seed) if between else spec
        found = []
        for cores in (1, 2, 3):
            cluster = Cluster(spec, switch, inputs, make_network=on(cores))
            for stall in stalls:
                cluster.network.stall("h1", *stall)
            if len(spec.topology.switches) > 1:
                cluster.network.cut("leaf1", "spine1", 2e-5, 1e-4)
            assert cluster.run(limit=10.0)
            cluster.network.run(limit=11.0)
            stations = [(s.began, s.ended, s.worker.statistics) for s in cluster.stations]
            sums = [[output.tobytes() for output in station.outputs] for station in cluster.stations]
            found.append([*facts_of(cluster), stations, sums])
            barriers += cluster.network.barriers
        assert found[0] == found[1] == found[2], seed
    assert barriers


@settings(max_examples=sized(6, 100))
@given(networks, st.integers(0, 2**32), st.integers(2, 4))
def test_any_network(switch: Engine, topology: Topology, seed: int, cores: int) -> None:
    names = [host.name for host in topology.hosts]
    flows = [
        FlowSpec(source=one, destination=other, size=3000)
        for one, other in zip(names, names[1:] + names[:1], strict=True)
        if one != other
    ]
    found = []
    for count in (1, cores):
        fabric = Fabric(topology, switch, seed=seed, make_network=on(count))
        made = Flows(fabric, flows, recovery=Recovery(), seed=seed)
        assert made.run(limit=1.0)
        found.append([*facts_of(fabric), made.completed])
    assert found[0] == found[1]


def test_one_core_does_the_work_if_the_system_refuses_threads(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-O0")
    made = "pthread_create(threads + made, NULL, run_part, t->parts[made])"
    third_refused = Mutant("parts.c", made, f"(made == 2 || {made})")
    refusing = library_with(third_refused, compiled.FOLDER, compiled.library, tmp_path)
    monkeypatch.setattr(network, "library", lambda: refusing)
    fabrics = [Fabric(leaf_spine(1, 3, 1, rate=10**10), switch, make_network=on(cores)) for cores in (1, 3)]
    found = []
    for fabric in fabrics:
        flow = FlowSpec(source="h1", destination="h3", size=30_000)
        assert Flows(fabric, [flow], recovery=Recovery()).run(limit=1.0)
        found.append(facts_of(fabric))
    assert found[0] == found[1]
    assert fabrics[1].network.one_core_because == "the system refuses 3 threads"
    assert not fabrics[1].network.barriers


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_cores_share_the_windows_that_follow_busy_ones(switch: Engine, algorithm: str) -> None:
    spec = ClusterSpec(leaf_spine(2, 2, 4, rate=10**10), window=64, algorithm=algorithm)
    vectors = [[np.ones(size, np.float32)] * 8 for size in (1, 20_000, 1, 20_000)]
    found, barriers = [], []
    for worth in (0, 5, 10**6):
        cluster = Cluster(spec, switch, vectors, make_network=on(2, worth))
        assert cluster.run(limit=10.0)
        found.append([*facts_of(cluster), [station.ended for station in cluster.stations]])
        barriers.append(cluster.network.barriers)
    assert found[0] == found[1] == found[2]
    assert barriers[0] > barriers[1] > barriers[2] == 0
    assert cluster.network.one_core_because == "too few packets arrive at a time"


def test_hosts_that_need_python_run_on_one_core(switch: Engine) -> None:
    """Hosts with a job and flows need Python."""
    spec, inputs, _ = random_case(0)
    topology = leaf_spine(2, 2, 2)
    vectors = [[x[0]] * len(topology.hosts) for x in inputs]
    found = []
    for cores in (1, 2):
        ring = Cluster(
            replace(spec, topology=topology, algorithm="ring"), switch, vectors, make_network=on(cores)
        )
        flows = Flows(ring, [FlowSpec(source="h1", destination="h3", size=30_000)], recovery=Recovery())
        assert ring.run(limit=10.0)
        assert flows.run(limit=11.0)
        found.append([*facts_of(ring), [station.ended for station in ring.stations], flows.completed])
    assert found[0] == found[1]
    assert not ring.network.barriers
    assert ring.network.one_core_because == "Python handles what arrives at h1"


def test_an_error_of_a_worker_on_a_thread_is_raised(switch: Engine) -> None:
    spec, _, _ = random_case(0)
    topology = leaf_spine(2, 2, 2)
    unequal = [[np.ones(10 + (rank == 3), np.float32) for rank in range(len(topology.hosts))]]
    alone = replace(spec, topology=topology, algorithm="ring")
    with pytest.raises(CollectiveError, match=r"ring rank . of 4: rank . has an array of another size"):
        Cluster(alone, switch, unequal, make_network=on(2)).run(limit=10.0)
    patience = replace(spec.recovery, give_up=0.01)
    silent = Cluster(
        replace(alone, recovery=patience), switch, [[np.ones(10, np.float32)] * 4], make_network=on(2)
    )
    silent.vacate("h4")
    with pytest.raises(
        StallError, match=r"ring rank .* of 4, all-reduce 1: awaiting .*; nothing new for 0.01 s"
    ):
        silent.run(limit=10.0)


MUTANTS = {
    "pause frames that nobody gets": Mutant(
        "parts.c", "            add_event(l, &l->signals, p->signals.at[i]);", "            ;", 3
    ),
    "windows left out in which something arrives from another part": Mutant(
        "loop.c", "int64_t due = l->first_parcel;", "int64_t due = NEVER;", 1
    ),
    "packets that come a window late": Mutant(
        "parts.c", "parcels_of(t, !t->filled, from", "parcels_of(t, t->filled, from", 1
    ),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_mistake_is_found(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mutant: Mutant
) -> None:
    monkeypatch.setenv("P4SWITCH_CFLAGS", "-O0")
    one = random_flows.run(switch, mutant.seed, observed=False)
    changed = library_with(mutant, compiled.FOLDER, compiled.library, tmp_path)
    monkeypatch.setattr(network, "library", lambda: changed)
    assert random_flows.run(switch, mutant.seed, observed=False, cores=2) != one
