"""Gathers and scatters: each worker gets what is meant for it, bit for bit, whatever links do, with both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.experiments.scenario.targets import BMV2_GROWTH
from fanin.workers import wire
from fanin.workers.collective import StallError
from fanin.workers.engines import native
from fanin.workers.engines.engine import Engine, State
from fanin.workers.engines.native import NativeEngine
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.protocol import MismatchError
from fanin.workers.tensor import Partition, Tensor
from tests.sizes import sized
from tests.workers import model_switch
from tests.workers.faulty_network import RECOVERY, ExactSums, Faults, Network, memory
from tests.workers.model_switch import Packet
from tests.workers.vectors import FAULTS, RACKS, gradients

VALUES = 64  # in a packet
VALUES_32 = {64: 64, 256: 256, 128: 64, 512: 256}  # of 32 bits in a packet of as many bytes

Operation = Literal["gather", "scatter"]
BLOCKS = st.integers(0, 6)  # of a part
SHORT = st.integers(0, VALUES - 1)  # how many elements the last block of a part lacks


def partitions(operation: Operation, workers: int) -> list[Partition]:
    return [Partition(operation, workers, rank) for rank in range(workers)]


def part(rank: int, workers: int, elements: int) -> slice:
    return slice(elements // workers * rank, elements // workers * (rank + 1))


def any_bits(workers: int, elements: int, seed: int) -> list[NDArray[np.float32]]:
    """Numbers, NaNs with payloads, infinities: any 32 bits."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2**32, (workers, elements), dtype=np.uint32)
    return [row.view(np.float32) for row in bits]


def gathered(inputs: Sequence[NDArray[np.float32]]) -> bytes:
    return b"".join(x[part(rank, len(inputs), x.size)].tobytes() for rank, x in enumerate(inputs))


def in_whole_blocks(x: NDArray[np.float32], workers: int, values: int) -> NDArray[np.float32]:
    """The vector with zeros after each part, where an all-reduce has the same blocks."""
    parts = x.reshape(workers, -1)
    return np.pad(parts, ((0, 0), (0, -parts.shape[1] % values))).reshape(-1)


@pytest.mark.slow
@settings(max_examples=sized(10, 150))
@given(RACKS, st.integers(1, 40), FAULTS, BLOCKS, SHORT, st.integers(0, 2**32))
def test_all_get_every_owners_bits(
    racks: list[int], window: int, faults: Faults, blocks: int, short: int, seed: int
) -> None:
    owners = partitions("gather", sum(racks))
    elements = sum(racks) * max(blocks * VALUES - short, 0)
    network = Network(racks, window=window, faults=faults, seed=seed)
    for step in range(2):
        inputs = any_bits(sum(racks), elements, seed + step)
        expected = gathered(inputs)
        results = network.all_reduce(inputs, 0.01, partitions=owners)
        assert [result.tobytes() for result in results] == [expected] * len(results)


@pytest.mark.slow
@settings(max_examples=sized(10, 150))
@given(RACKS, st.integers(1, 40), FAULTS, BLOCKS, SHORT, st.sampled_from([64, 128]), st.integers(0, 2**32))
def test_each_owner_gets_the_bits_that_an_all_reduce_gives(
    racks: list[int], window: int, faults: Faults, blocks: int, short: int, values: int, seed: int
) -> None:
    workers = sum(racks)
    owners, elements = partitions("scatter", workers), max(blocks * values - short, 0)
    network = Network(racks, window=window, values=values, faults=faults, seed=seed)
    sums = ExactSums(values, window)
    for step in range(3):  # the later ones with expected exponents, if the vector fits into the window
        inputs = gradients(workers, workers * elements, seed, step)
        expected = sums.next([in_whole_blocks(x, workers, values) for x in inputs]).reshape(workers, -1)
        for rank, result in enumerate(network.all_reduce(inputs, 0.01, partitions=owners)):
            own = part(rank, workers, workers * elements)
            assert result[own].tobytes() == expected[rank, :elements].tobytes()


@pytest.mark.slow
@pytest.mark.skipif(native.library() is None, reason="no C compiler")
@settings(max_examples=sized(10, 150))
@given(
    st.sampled_from(["gather", "scatter"]),
    RACKS,
    st.integers(1, 40),
    FAULTS,
    BLOCKS,
    SHORT,
    st.sampled_from(list(wire.SIZES)),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_both_engines_send_the_same_packets_at_the_same_times(
    operation: Operation,
    racks: list[int],
    window: int,
    faults: Faults,
    blocks: int,
    short: int,
    values: int,
    holes: bool,
    seed: int,
) -> None:
    owners = partitions(operation, sum(racks))
    block = VALUES_32[values] if operation == "gather" else values
    elements = sum(racks) * max(blocks * block - short, 0)

    def history(engine: Callable[[State], Engine]) -> tuple[object, ...]:
        network = Network(
            racks,
            window=window,
            values=values,
            faults=faults,
            recovery=replace(RECOVERY, granularity=1e-3),
            seed=seed,
            engine=engine,
            non_finite="propagate",
        )
        results, states = [], []
        for step in range(3):
            inputs = gradients(sum(racks), elements, seed, step)
            if holes and elements:
                inputs[step % len(inputs)][seed % elements] = np.nan
            for rank, result in enumerate(network.all_reduce(inputs, 0.01, partitions=owners)):
                results.append(result[part(rank, len(inputs), elements)].tobytes())
                if operation == "gather":
                    results.append(result.tobytes())
            states.append([memory(worker) for worker in network.workers])
        return network.sent, results, states, [worker.statistics for worker in network.workers], network.now

    assert history(NativeEngine) == history(NumpyEngine)


@pytest.mark.parametrize("engine", [NumpyEngine, NativeEngine])
@pytest.mark.parametrize("blocks", [2, 20])  # more blocks than slots, and fewer
def test_a_block_that_somebody_cannot_quantize_has_no_sum_and_everybody_knows(
    engine: Callable[[State], Engine], blocks: int
) -> None:
    owners = partitions("scatter", 2)
    network = Network([2], window=4, engine=engine, non_finite="propagate")
    for step in range(2):
        inputs = gradients(2, blocks * VALUES, 1, step)
        inputs[1][0] = np.inf
        for worker, result in zip(
            network.workers, network.all_reduce(inputs, partitions=owners), strict=True
        ):
            assert worker.unsummed.tolist() == list(range(VALUES))
            assert np.isnan(result[:VALUES]).all()


@given(st.integers(1, 9), st.integers(0, 200), SHORT, st.integers(1, 512))
def test_the_parts_take_turns_each_with_its_blocks_in_order(
    parts: int, blocks: int, short: int, window: int
) -> None:
    of_part = max(blocks * VALUES - short, 1)
    tensor = Tensor(
        parts * of_part,
        workers=parts,
        values=VALUES,
        window=window,
        partition=Partition("gather", parts, 0),
    )
    first_elements = tensor.by_block(np.arange(parts * of_part))[:, 0]
    owners, offsets = np.divmod(first_elements, of_part)
    for part in range(parts):
        assert offsets[owners == part].tolist() == list(range(0, of_part, VALUES))
    turns = [owner for owner, _ in groupby(owners)]
    if parts > 1:
        assert turns == [turn % parts for turn in range(len(turns))]
        longest = max(len(list(turn)) for _, turn in groupby(owners))
        assert longest <= max(1, min(32, window // parts))
    vector = np.arange(parts * of_part)
    assert (tensor.by_element(tensor.by_block(vector)) == vector).all()


class TestTraffic:
    """No values travel that stand for zeros, and none to workers that do not need them."""

    def bytes_of(
        self, operation: Operation, workers: int = 4, blocks: int = 100
    ) -> list[tuple[float, float]]:
        """Payload sent and received by each worker, in vectors."""
        owners = partitions(operation, workers)
        network = Network([workers], window=64, values=256)
        network.all_reduce(gradients(workers, blocks * 256, 1), partitions=owners)
        vector = blocks * 1024
        every = [worker.statistics for worker in network.workers]
        return [(one.bytes_sent / vector, one.bytes_received / vector) for one in every]

    def test_of_a_gather_each_sends_its_own_part_and_receives_the_others(self) -> None:
        for sent, received in self.bytes_of("gather"):
            assert 0.25 < sent < 0.28
            assert 0.75 < received < 0.78

    def test_of_a_scatter_each_sends_the_others_parts_and_receives_its_own(self) -> None:
        zeros = 64 * 256 / (100 * 1024)  # which come down with the exponents of the first window
        for sent, received in self.bytes_of("scatter"):
            assert 0.75 < sent < 0.79
            assert 0.25 < received - zeros < 0.29


class TestRoomInSwitches:
    """A packet without values gets some in a switch; BMv2 ends if it grows by more than it has room for."""

    @pytest.mark.parametrize("engine", [NumpyEngine, NativeEngine])
    @pytest.mark.parametrize("values", list(wire.SIZES))
    @pytest.mark.parametrize("operation", ["gather", "scatter"])
    def test_no_packet_grows_by_more(
        self, operation: Operation, values: int, engine: Callable[[State], Engine]
    ) -> None:
        network = Network(
            [2, 1], window=4, values=values, engine=engine, growth=BMV2_GROWTH, faults=Faults(loss=0.1)
        )
        bits = 32 if operation == "gather" else wire.BITS[values]
        block = network.workers[0].exchange_block * 32 // bits
        owners = partitions(operation, 3)
        inputs = gradients(3, 3 * 5 * block, 1)
        expected = ExactSums(block, 4).next(inputs)
        if operation == "gather":
            expected = np.frombuffer(gathered(inputs), np.float32)
        for rank, result in enumerate(network.all_reduce(inputs, partitions=owners)):
            seen = slice(None) if operation == "gather" else part(rank, 3, result.size)
            assert result[seen].tobytes() == expected[seen].tobytes()
        sizes = [Packet.decode(sent).size for sent in network.sent if sent[0] >> 4 == wire.TAKE]
        assert sizes
        for count, of_bits in {model_switch.VALUES[size] for size in sizes}:
            assert count * of_bits // 8 <= BMV2_GROWTH


class TestDisagreement:
    def outcomes(self, calls: list[str], owners: list[Partition | None]) -> Counter[str]:
        network = Network([2], window=4, recovery=replace(RECOVERY, give_up=1.0))
        inputs = gradients(2, 6 * VALUES, 1)
        counts: Counter[str] = Counter()
        try:
            network.all_reduce(inputs, calls=calls, partitions=owners)  # type: ignore[arg-type]
        except (MismatchError, StallError) as error:
            counts[type(error).__name__] += 1
        return counts

    def test_two_gathers_for_different_purposes_are_noticed_at_once(self) -> None:
        assert self.outcomes(["one", "two"], [*partitions("gather", 2)]) == {"MismatchError": 1}

    def test_a_gather_and_a_scatter_give_nothing(self) -> None:
        owners = [partitions("gather", 2)[0], partitions("scatter", 2)[1]]
        assert sum(self.outcomes(["", ""], [*owners]).values()) == 1

    def test_a_gather_and_an_all_reduce_give_nothing(self) -> None:
        assert sum(self.outcomes(["", ""], [partitions("gather", 2)[0], None]).values()) == 1
