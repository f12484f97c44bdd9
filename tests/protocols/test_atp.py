"""ATP: workers, parameter servers, program and oracle together, with faults and jobs that share slots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Stall, Work
from fanin.cli import app
from fanin.controller.errors import ControllerError
from fanin.controller.telemetry import Event
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.diagnosis.diagnose import diagnose
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.results.measured import Measured, row
from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties
from fanin.topologies.shapes import leaf_spine
from fanin.workers import wire
from fanin.workers.collective import Server
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import SlottedWorker
from tests.protocols.live import right_sums_of, run_live
from tests.protocols.mutants import FAULTY, protocol_with, switch_with

pytestmark = pytest.mark.slow

RESENT, COLLIDED, CONGESTED = 1, 2, 4
SCENARIO = """
name = "shared"
protocol = "atp"
size = "100 kB"
repetitions = 2
workers = 4
window = 16
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 10
rate = "10 Gb/s"
[other_job]
size = "100 kB"
repetitions = 2
"""


@pytest.fixture(scope="module")
def atp() -> Protocol:
    return protocol_of("atp")


@pytest.fixture(scope="module")
def switch(atp: Protocol) -> Engine:
    return load_switch(atp.program)


def _two_jobs(slots: int, elements: tuple[int, ...] = (3000, 1, 700)) -> Scenario:
    works = tuple(Work(racks, window=3, elements=elements) for racks in ((2, 3), (1, 2)))
    return Scenario(jobs=works, links=FAULTY, servers=True, slots=slots)


@pytest.mark.parametrize("slots", [1, 3, 50])
def test_the_result_is_the_sum_however_few_slots_the_jobs_share(
    atp: Protocol, switch: Engine, slots: int
) -> None:
    assert not run_scenario(_two_jobs(slots), switch, protocol=atp).violations


@pytest.mark.parametrize("seed", range(4))
def test_soak_finds_nothing_wrong_in_random_networks(atp: Protocol, switch: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, atp), switch, protocol=atp).violations


def test_with_enough_slots_switches_add_up_everything(atp: Protocol, switch: Engine) -> None:
    """The other leaf stores one contribution and adds two; the server's leaf then has three workers and that sum."""
    work = Work((3, 3), window=8, elements=(64 * 20,))
    outcome = run_scenario(Scenario(jobs=(work,), servers=True, slots=100), switch, protocol=atp)
    assert not outcome.violations
    assert outcome.events[Event.ADDED] == 20 * (2 + 3)
    assert outcome.events[Event.NEW_CHUNK] == 20 * (1 + 1)


def test_workers_whose_packets_meet_in_a_full_queue_do_not_meet_again(atp: Protocol, switch: Engine) -> None:
    """With equal timeouts, the last two of six workers would always find the queue of the server's link full."""
    short = LinkProperties(delay=2e-5, queue_bytes=2_500)
    jobs = (
        Work((3, 0), window=3, elements=(257, 19)),
        Work((3, 3), values=256, elements=(5056, 5056), stalls=(Stall(5, 9e-5, 1e-4),)),
    )
    scenario = Scenario(jobs=jobs, spines=2, rate=10**11, links=short, coalescing=0.0, servers=True, slots=3)
    assert not run_scenario(scenario, switch, protocol=atp).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A slot that another chunk holds is taken from it, and its values are added to it.
        ("stored_lease == hdr.switchml.lease && stored_chunk == hdr.switchml.chunk;", "true;"),
        # A copy of a packet is added again.
        ("if ((ranks & RANKS) == 0) {", "if (true) {"),
        # The server counts a packet's own worker only.
        ("ranks = ranks | RANKS;\n                    RANKS = ranks;", "ranks = ranks | RANKS;"),
        # What a slot has is lost when a packet is resent.
        ("RANKS = ranks;\n                        events.count(EVENT_SENT", "events.count(EVENT_SENT"),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    atp: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    wrong = switch_with(atp, text, mutated, cache)
    assert run_scenario(_two_jobs(3, (6000, 6000)), wrong, protocol=atp).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # The server adds what it has already.
        ('adds = same & (held["call"] & packets["call"] == 0)', "adds = same"),
        # It adds to the chunk that had the place before.
        ("self._chunks[places[begins]] = packets[begins]", "adds = begins"),
        # A worker takes the result of another chunk.
        ('packets["tsi"].astype(np.int64), -1), sums', "self._awaited.max(), -1), sums"),
    ],
)
def test_soak_finds_a_worker_or_server_with_a_mistake(
    atp: Protocol, switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    wrong = protocol_with(atp, text, mutated, tmp_path)
    assert run_scenario(_two_jobs(3, (3000, 3000)), switch, protocol=wrong).violations


# -- the worker ------------------------------------------------------------------------------------------------------


def _packets(batches: Sequence[NDArray[np.uint8]]) -> NDArray[np.void]:
    empty = np.zeros((0, wire.packet_dtype(64).itemsize), np.uint8)
    return wire.as_packets(np.concatenate([empty, *batches]))


def _worker(atp: Protocol, window: int = 8, slots: int = 8) -> SlottedWorker:
    worker = atp.make_worker(Lease(1, 0, 2, window, values=64, slots=slots), Recovery())
    assert isinstance(worker, SlottedWorker)
    return worker


def _sent(worker: SlottedWorker, now: float) -> NDArray[np.void]:
    return _packets(worker.datagrams_to_send(now))


def _answer(worker: SlottedWorker, packets: NDArray[np.void], now: float, e0: int = 0, e1: int = 0) -> None:
    results = packets.copy()
    results["kind"], results["e0"], results["e1"] = wire.kind(wire.RESULT, 64), e0, e1
    worker.receive(wire.as_datagrams(results), now)


def test_places_of_a_window_have_different_slots_which_other_jobs_have_in_another_order(
    atp: Protocol,
) -> None:
    orders = []
    for lease in (1, 2):
        worker = atp.make_worker(Lease(lease, 0, 2, 8, 100, 64, slots=8), Recovery())
        assert isinstance(worker, SlottedWorker)
        worker.start(np.ones(8 * 64, np.float32), 0.0)
        orders.append(_sent(worker, 0.0)["pool_index"].tolist())
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(100, 108))
    assert orders[0] != orders[1]


def test_after_a_collision_the_next_chunk_at_this_place_has_another_slot(atp: Protocol) -> None:
    worker = _worker(atp, window=2, slots=100)
    worker.start(np.ones(4 * 64, np.float32), 0.0)
    first = _sent(worker, 0.0)
    _answer(worker, first[:1], 1e-5, e0=1)
    _answer(worker, first[1:], 1e-5)
    second = _sent(worker, 1e-5)
    assert second["tsi"].tolist() == [2, 3]
    assert second["pool_index"][0] != first["pool_index"][0]
    assert second["pool_index"][1] == first["pool_index"][1]


def test_a_packet_is_resent_once_results_of_three_later_ones_are_there(atp: Protocol) -> None:
    worker = _worker(atp)
    worker.start(np.ones(8 * 64, np.float32), 0.0)
    sent = _sent(worker, 0.0)
    _answer(worker, sent[1:3], 1e-5)
    assert not len(_sent(worker, 1e-5))
    _answer(worker, sent[3:4], 2e-5)
    again = _sent(worker, 2e-5)
    assert again["tsi"].tolist() == [0]
    assert again["e1"].tolist() == [RESENT]
    _answer(worker, sent[4:], 3e-5)
    assert not len(_sent(worker, 3e-5))  # it was sent after all of these


def test_congestion_halves_the_window_once(atp: Protocol) -> None:
    worker = _worker(atp)
    worker.start(np.ones(64 * 64, np.float32), 0.0)
    sent = _sent(worker, 0.0)
    _answer(worker, sent[:2], 1e-5, e1=CONGESTED)
    _answer(worker, sent[2:4], 2e-5, e1=CONGESTED)  # of the same window
    assert not len(_sent(worker, 2e-5))  # four are in flight
    _answer(worker, sent[4:], 3e-5)
    assert len(_sent(worker, 3e-5)) == 5  # one more, after a window of results


# -- the server ------------------------------------------------------------------------------------------------------


def _server(atp: Protocol) -> Server:
    assert atp.make_server is not None
    return atp.make_server(Lease(1, 0, 3, 2, values=64, last_chunk=99, slots=2), Recovery())


def _update(chunk: int, ranks: int, value: int = 1, e1: int = 0) -> NDArray[np.void]:
    packets = np.zeros(1, wire.packet_dtype(64))
    packets["kind"], packets["lease"], packets["tsi"], packets["call"] = wire.kind(0, 64), 1, chunk, ranks
    packets["values"], packets["e1"] = value, e1
    return packets


def _served(server: Server, *packets: NDArray[np.void]) -> NDArray[np.void]:
    server.receive(np.concatenate([wire.as_datagrams(packet) for packet in packets]), 0.0)
    return _packets(server.datagrams_to_send(0.0))


def test_the_server_completes_a_sum_of_what_comes_in_any_parts(atp: Protocol) -> None:
    server = _server(atp)
    assert not len(_served(server, _update(0, 0b011, 5), _update(0, 0b001, 2)))
    assert not len(_served(server, _update(0, 0b110, 9)))  # has one worker twice
    (result,) = _served(server, _update(0, 0b100, 3, COLLIDED))
    assert (result["values"] == 8).all()
    assert (result["kind"], result["e0"]) == (wire.kind(wire.RESULT, 64), 1)


def test_the_server_answers_what_is_asked_again_once_a_batch(atp: Protocol) -> None:
    server = _server(atp)
    assert len(_served(server, _update(0, 0b111))) == 1
    assert len(_served(server, _update(0, 0b001), _update(0, 0b010))) == 1
    _served(server, _update(4, 0b001))  # two windows further on
    assert not len(_served(server, _update(0, 0b001)))


def test_the_server_ignores_chunks_of_an_earlier_lease_with_its_number(atp: Protocol) -> None:
    """One on its way to the server when the lease was granted would keep its place from all chunks below it."""
    server = _server(atp)
    assert not len(_served(server, _update(1000, 0b001)))
    assert len(_served(server, _update(0, 0b111))) == 1


def test_a_congestion_mark_on_the_way_to_the_server_comes_back_in_results(atp: Protocol) -> None:
    server = _server(atp)
    server.count_marks(1)  # type: ignore[attr-defined]
    (result,) = _served(server, _update(0, 0b111))
    assert result["e1"] & CONGESTED


# -- the tree --------------------------------------------------------------------------------------------------------


def test_all_switches_of_the_tree_send_towards_the_server(atp: Protocol) -> None:
    network = leaf_spine(1, 3, 3)
    workers = [host.name for leaf in network.leaves[:2] for host in network.hosts_of(leaf.name)]
    *workers, server = workers
    tree = aggregation_tree(network, Job(1, tuple(workers), server=server))
    parents = {part.switch: part.parent for part in tree.aggregators}
    assert parents == {"leaf1": "spine1", "spine1": "leaf2", "leaf2": server}
    assert tree.root.switch == "leaf2"
    assert Counter(name for part in tree.aggregators for name in part.children) == Counter(
        [*workers, "leaf1", "spine1"]
    )
    plan = atp.planner().plan_aggregation(network, tree)
    admitted = [e.params for e in plan["leaf2"].entries if e.action.endswith("admit_child")]
    assert [(one["below"], one["all"]) for one in admitted] == [(8, 31), (16, 31), (7, 31)]


def test_what_cannot_be_is_refused(atp: Protocol, tmp_path: Path) -> None:
    network = leaf_spine(1, 2, 20)
    hosts = tuple(host.name for host in network.ranked_hosts)
    with pytest.raises(ControllerError, match="h1 is a worker's host, and the job's server needs one of its"):
        aggregation_tree(network, Job(1, hosts[:2], server="h1"))
    tree = aggregation_tree(network, Job(1, hosts[:33], server=hosts[-1]))
    with pytest.raises(ControllerError, match="bits for 32 workers, not 33"):
        atp.planner().plan_aggregation(network, tree)
    (tmp_path / "shared.toml").write_text(SCENARIO)
    with pytest.raises(
        ScenarioError, match="atp needs 2 hosts without workers for its servers, and there are 1"
    ):
        load_scenario(tmp_path / "shared.toml", ["workers=9"])


# -- what fanin says about a run -------------------------------------------------------------------------------------


def test_a_diagnosis_names_slots_that_others_use_and_not_the_jobs_own_server(
    switch: Engine, tmp_path: Path
) -> None:
    (tmp_path / "shared.toml").write_text(SCENARIO)
    found = []
    for slots in (2, 200):
        (point,) = load_scenario(tmp_path / "shared.toml", [f"slots={slots}"]).points
        measured = run_virtual(point, switch)
        found.append(diagnose(row(point, measured), measured.usage))
    few, many = found[0].findings[0], found[1]
    assert few.cause == "slot collisions"
    assert "all jobs share 2 slots" in few.evidence
    assert "(window = 4), and let links mark packets (links.ecn_bytes)" in few.change
    assert many.cause not in ("slot collisions", "noisy neighbour")


def test_a_run_without_congestion_marks_gets_a_warning(tmp_path: Path) -> None:
    scenario = tmp_path / "shared.toml"
    scenario.write_text(SCENARIO.replace("100 kB", "4 kB"))
    said = [
        # In this process, whose processes for points have imported what they need.
        CliRunner()
        .invoke(app, ["run", str(scenario), "--results", str(tmp_path / "results"), *changes])
        .stderr
        for changes in ((), ("--set", "links.ecn_bytes=20000"), ("--set", "protocol=fanin"))
    ]
    assert "set links.ecn_bytes, such as 20000" in said[0]
    assert said[1:] == ["", ""]


# -- live networks ---------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_in_a_live_network_its_server_runs_on_a_host(tmp_path: Path) -> None:
    row = right_sums_of("atp", tmp_path)
    # A vector and its sum of 40 packets each, a barrier, and some again. With those of the server it would be 109.
    assert 75 < row["packets_per_worker"] < 105


@pytest.mark.live
def test_a_server_that_fails_in_a_live_network_ends_the_run_and_its_log_is_named(
    atp: Protocol, tmp_path: Path
) -> None:
    protocol_with(atp, "self._take(packets[first])", "self._take(packets[first][1 / 0])", tmp_path)
    included = str(atp.program.parents[2] / "p4src")
    (tmp_path / "program.p4").write_text(atp.program.read_text().replace("../../p4src", included))
    done = run_live(".", tmp_path)
    assert done.returncode == 1
    assert "the protocol's server has ended; see" in done.stdout + done.stderr
    (log,) = tmp_path.rglob("server.log")
    assert "ZeroDivisionError" in log.read_text()


# -- scenarios -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def over_slots(switch: Engine, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    file = tmp_path_factory.mktemp("shared") / "shared.toml"
    file.write_text(SCENARIO)
    points = [load_scenario(file, [f"slots={slots}"]).points[0] for slots in (1, 16, 1024)]
    return [run_virtual(point, switch) for point in points]


def test_fewer_slots_take_more_time_and_all_sums_are_right(over_slots: list[Measured]) -> None:
    assert [one.violations for one in over_slots] == [0, 0, 0]
    few, some, many = (one.median for one in over_slots)
    assert many < some < few
    # Without slots, the server's link carries each worker's vector.
    assert 2.5 < few / many < 4.5
