"""OmniReduce: worker, program and oracle together, with faults and sparse vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.workers.collective import CollectiveError
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import SlottedWorker
from tests.protocols.mutants import FAULTY, protocol_with, switch_with

pytestmark = pytest.mark.slow

BLOCK = 128
EMPTY, FULL = 12, 12 + 4 * BLOCK  # bytes of payload
SCENARIO = """
name = "sparse"
protocol = "omnireduce"
size = "400 kB"
window = 32
repetitions = 2
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 3
rate = "1 Gb/s"
"""


@pytest.fixture(scope="module")
def omnireduce() -> Protocol:
    return protocol_of("omnireduce")


@pytest.fixture(scope="module")
def sparse_switch(omnireduce: Protocol) -> Engine:
    return load_switch(omnireduce.program)


def _work(omnireduce: Protocol, racks: tuple[int, ...], window: int, elements: tuple[int, ...]) -> Work:
    return Work(racks, window, elements=elements, chunk_numbers=omnireduce.chunks(elements, 64, window))


def _worker(omnireduce: Protocol, window: int, last_chunk: int = 1000) -> SlottedWorker:
    worker = omnireduce.make_worker(Lease(1, 0, 1, window, last_chunk=last_chunk), Recovery())
    assert isinstance(worker, SlottedWorker)
    return worker


@pytest.mark.parametrize("racks", [(1,), (2,), (5,), (2, 3), (1, 1, 1), (20, 13)])
def test_the_result_is_the_sum_of_all_workers_with_faults(
    omnireduce: Protocol, sparse_switch: Engine, racks: tuple[int, ...]
) -> None:
    scenario = Scenario(jobs=(_work(omnireduce, racks, 3, (5000, 1, 700)),), links=FAULTY)
    assert not run_scenario(scenario, sparse_switch, protocol=omnireduce).violations


@pytest.mark.parametrize("seed", range(4))
def test_soak_finds_nothing_wrong_in_random_networks(
    omnireduce: Protocol, sparse_switch: Engine, seed: int
) -> None:
    assert not run_scenario(scenario_for(seed, omnireduce), sparse_switch, protocol=omnireduce).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # The workers proceed to the block that the last one of them has.
        ("if (hdr.next.block < next) {", "if (hdr.next.block > next) {"),
        # Values of the cell's chunk before are part of the sum.
        ("operation = filled == 1 ? OPERATION_ADD : OPERATION_STORE;", "operation = OPERATION_ADD;"),
        # A result has values only if the packet that came last has some.
        ("if (filled == 1) {", "if (hdr.values_0.isValid()) {"),
        # Duplicates count.
        ("seen = seen | sender_bit;", "seen = seen | (sender_bit << 1);"),
        # A retransmitted result has the `next` of whoever asks.
        ("hdr.next.block = next;", "if (write) { hdr.next.block = next; }"),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    omnireduce: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    scenario = Scenario(jobs=(_work(omnireduce, (2, 3), 3, (9000, 9000)),), links=FAULTY)
    wrong = switch_with(omnireduce, text, mutated, cache)
    assert run_scenario(scenario, wrong, protocol=omnireduce).violations


def test_a_zero_block_is_not_sent(omnireduce: Protocol) -> None:
    worker = _worker(omnireduce, window=2)
    x = np.zeros(6 * BLOCK, np.float32)
    x[[0, 4 * BLOCK]] = 1  # blocks 0 and 4, of columns 0; column 1 is zero
    worker.start(x, 0.0)
    full, empty = worker.datagrams_to_send(0.0)
    assert (full.shape, empty.shape) == ((1, FULL), (1, EMPTY))
    assert [int(one[0, 8:12].view(">u4")[0]) for one in (full, empty)] == [4, 0xFFFFFFFF]


def test_a_worker_takes_part_in_a_block_that_only_others_have(omnireduce: Protocol) -> None:
    worker = _worker(omnireduce, window=1)
    worker.start(np.zeros(4 * BLOCK, np.float32), 0.0)
    (first,) = worker.datagrams_to_send(0.0)
    result = first.copy()
    result[0, 0], result[0, 8:12] = 0x10, [0, 0, 0, 3]
    worker.receive(result, 1e-6)
    (second,) = worker.datagrams_to_send(1e-6)
    assert second.shape == (1, EMPTY)
    assert second[0, 5] == first[0, 5] + 1  # the slot's next chunk number
    assert not worker.finished


@pytest.mark.parametrize("following", [0, 1, 4, 9])
def test_a_next_block_that_cannot_be_is_ignored(omnireduce: Protocol, following: int) -> None:
    """Block 2 is the only one after block 0 in a column of a vector of four blocks with two columns."""
    worker = _worker(omnireduce, window=2)
    worker.start(np.ones(4 * BLOCK, np.float32), 0.0)
    (sent,) = worker.datagrams_to_send(0.0)
    result = sent[:1].copy()
    result[0, 0], result[0, 8:12] = 0x10, [0, 0, 0, following]
    worker.receive(result, 1e-6)
    assert worker.statistics.accepted == 0
    assert worker.statistics.ignored["impossible"] == 1


def test_what_a_worker_cannot_send_is_refused(omnireduce: Protocol) -> None:
    worker = _worker(omnireduce, window=2, last_chunk=3)
    for value in (17, np.nan):
        with pytest.raises(ValueError, match="up to 16"):
            worker.start(np.array([value], np.float32), 0.0)
    with pytest.raises(CollectiveError, match=r"ends with chunk number 3 .* up to 5: ask for a new lease"):
        worker.start(np.ones(6 * BLOCK, np.float32), 0.0)
    assert worker.finished


@pytest.fixture(scope="module")
def over_sparsity(sparse_switch: Engine, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    file = tmp_path_factory.mktemp("sparse") / "sparse.toml"
    file.write_text(SCENARIO)
    points = [load_scenario(file, [f"sparsity={share}"]).points[0] for share in (0, 0.9, 1)]
    return [run_virtual(point, sparse_switch) for point in points]


def test_sparser_vectors_take_less_time_and_fewer_bytes(over_sparsity: list[Measured]) -> None:
    dense, sparse, zero = over_sparsity
    assert [one.violations for one in over_sparsity] == [0, 0, 0]
    assert zero.median < sparse.median < dense.median
    assert zero.wire_bytes_per_worker < sparse.wire_bytes_per_worker / 3 < dense.wire_bytes_per_worker / 5


def test_the_time_follows_the_blocks_that_any_worker_has(over_sparsity: list[Measured]) -> None:
    """Six workers have 1 - 0.9^6 = 47 % of the blocks together. A result has them all, whoever sent them."""
    dense, sparse, _ = over_sparsity
    assert 0.42 < sparse.median / dense.median < 0.56


def _violations(omnireduce: Protocol, switch: Engine, folder: Path, text: str, mutated: str) -> Sequence[str]:
    """Return what soak finds with a worker in whose file `text` is replaced."""
    mutant, elements = protocol_with(omnireduce, text, mutated, folder), (5000,) * 3
    numbers = omnireduce.chunks(elements, 64, 3)
    assert numbers is not None
    work = Work((2, 3), 3, elements=elements, chunk_numbers=2 * numbers)
    return run_scenario(Scenario(jobs=(work,), links=FAULTY), switch, protocol=mutant).violations


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A block that is not zero is passed over.
        (
            "follows[one - 1] = np.where(filled[one],",
            "follows[one - 1] = np.where(filled[one] & (one % 2 > 0),",
        ),
        # A column is complete as soon as the first block is.
        ('packets["next"] = self._follows[rows]', 'packets["next"] = NO_BLOCK'),
    ],
)
def test_soak_finds_a_worker_that_leaves_blocks_out(
    omnireduce: Protocol, sparse_switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    problems = _violations(omnireduce, sparse_switch, tmp_path, text, mutated)
    assert any("wrong elements" in problem for problem in problems)


@pytest.mark.few(0)  # they wait until workers give up
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A late copy of an earlier result is the sum of the current block.
        (
            "(self._awaited[chunks[first] % self.lease.window] == chunks[first])",
            "(self._awaited[chunks[first] % self.lease.window] >= 0)",
        ),
        # The next round uses the same cell, whose result others may still need.
        ("self._chunks[slots] += self.lease.window", "self._chunks[slots] += 2 * self.lease.window"),
    ],
)
def test_soak_finds_a_worker_that_confuses_rounds(
    omnireduce: Protocol, sparse_switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    assert _violations(omnireduce, sparse_switch, tmp_path, text, mutated)
