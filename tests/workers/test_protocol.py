"""A worker and the switches above it: sums exact to the bit, whatever the network does."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.workers import wire
from fanin.workers.agreement import DIGITS
from fanin.workers.collective import CollectiveError, StallError
from fanin.workers.engines.engine import Engine, State
from fanin.workers.engines.native import fastest
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.lease import Lease
from fanin.workers.protocol import LeaseExhaustedError, MismatchError, SaturationError, Worker
from fanin.workers.recovery import Recovery
from fanin.workers.values.scaling import MAX_CACHED_LENGTHS
from fanin.workers.wire import NO_CALL
from tests.sizes import sized
from tests.workers.faulty_network import ExactSums, Faults, Network, exact_sum
from tests.workers.model_switch import RESULT, UPDATE, ModelSwitch, Packet, UntaggedSwitch
from tests.workers.vectors import FAULTS, RACKS, SIZES, gradients

LEASE = Lease(id=7, rank=0, workers=2, window=4, first_slot=3, values=64)
numpy_worker = partial(Worker, engine=NumpyEngine)


def sent(worker: Worker, now: float) -> list[Packet]:
    return [Packet.decode(row.tobytes()) for batch in worker.datagrams_to_send(now) for row in batch]


def is_agreement(packet: Packet) -> bool:
    """Return whether its values are not of a vector, but what all workers must have passed alike."""
    return (
        packet.size in (1, 3) and packet.values[5] in (64, 128, 256, 512) and not any(packet.values[DIGITS:])
    )


def result(packet: Packet, **changes: object) -> NDArray[np.uint8]:
    """The result as if every other worker of LEASE had sent zeros, and had called with a vector as long."""
    values = tuple(LEASE.workers * v for v in packet.values) if is_agreement(packet) else packet.values
    changes = {"msg_type": RESULT, "values": values, **changes}
    return np.frombuffer(replace(packet, **changes).encode(), np.uint8).reshape(1, -1)


def answer(worker: Worker, packets: list[Packet], now: float) -> None:
    for packet in packets:
        worker.receive(result(packet), now)


# -- what must hold whatever happens


@pytest.mark.slow
@pytest.mark.long
@settings(max_examples=sized(60, 200))
@given(
    RACKS,
    st.integers(1, 9),
    FAULTS,
    SIZES,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from([64, 128]),
)
def test_every_all_reduce_finishes_and_every_sum_is_exact(
    racks: list[int], window: int, faults: Faults, sizes: list[int], seed: int, skew: float, values: int
) -> None:
    network = Network(racks, window=window, values=values, faults=faults, seed=seed)
    sums = ExactSums(values, window)
    for step, size in enumerate(sizes):
        inputs = gradients(sum(racks), size, seed, step)
        expected = sums.next(inputs)
        for result in network.all_reduce(inputs, skew):
            assert result.tobytes() == expected.tobytes()
    for worker in network.workers:
        assert worker.statistics.all_reduces == len(sizes)
        assert not worker.statistics.saturated
        assert worker.deadline() is None


@pytest.mark.parametrize("values", wire.SIZES)
def test_packets_of_all_sizes_through_two_levels_with_loss(values: int) -> None:
    network = Network([2, 2], window=5, values=values, faults=Faults(loss=0.1, duplication=0.1), seed=1)
    inputs = gradients(4, 20 * values + 3, seed=1)
    expected = exact_sum(inputs, values)
    assert all((result == expected).all() for result in network.all_reduce(inputs))


@pytest.mark.parametrize("values", [64, 128])
def test_results_lie_within_the_promised_bound_of_the_float64_sum(values: int) -> None:
    network = Network([3], window=4, values=values, faults=Faults(loss=0.05))
    inputs = gradients(3, 1000, seed=2)
    exact = np.sum(np.array(inputs, np.float64), axis=0)
    for worker, result in zip(network.workers, network.all_reduce(inputs), strict=True):
        assert (np.abs(result - exact) <= worker.error_bound()).all()


def test_the_same_seed_gives_the_same_history_and_losses_do_not_change_the_sum() -> None:
    def history(seed: int, faults: Faults) -> tuple[list[bytes], bytes]:
        network = Network([2, 1], window=3, faults=faults, seed=seed)
        results = network.all_reduce(gradients(3, 777, seed=5))
        return network.sent, results[0].tobytes()

    lossy = Faults(loss=0.2, duplication=0.2, delay=(0.0001, 0.01))
    assert history(1, lossy) == history(1, lossy)
    assert history(1, lossy)[0] != history(2, lossy)[0]
    assert history(1, lossy)[1] == history(2, Faults())[1]


def outcomes(switch: type[ModelSwitch], faults: Faults) -> Counter[str]:
    """Return what ten networks of three workers make of a sum."""
    inputs = gradients(3, 2000, seed=3)
    expected = exact_sum(inputs, values=64)
    counts: Counter[str] = Counter()
    for seed in range(10):
        network = Network([3], window=2, faults=faults, seed=seed, switch=switch)
        try:
            results = network.all_reduce(inputs)
        except StallError:
            counts["stalled"] += 1
        else:
            counts["right" if all((result == expected).all() for result in results) else "wrong"] += 1
    return counts


@pytest.mark.slow
def test_without_the_chunk_tag_late_duplicates_corrupt_sums() -> None:
    """The mutant: SwitchML's own algorithm bears loss in order, and not resent packets that overtake each other."""
    in_order = Faults(loss=0.1, delay=(0.0005, 0.0005))
    reordered = Faults(loss=0.05, delay=(0.0001, 0.02))
    assert outcomes(UntaggedSwitch, in_order) == {"right": 10}
    assert outcomes(UntaggedSwitch, reordered)["wrong"] > 0
    assert outcomes(ModelSwitch, reordered) == {"right": 10}


# -- what a worker sends


def test_the_first_packets_announce_exponents_and_carry_no_values() -> None:
    worker = numpy_worker(replace(LEASE, values=256))
    worker.start(np.full(3 * 256, 1.5, np.float32), 0.0)
    first = sent(worker, 0.0)
    assert [packet.chunk for packet in first] == [0, 1, 2]  # B = min(window, blocks)
    assert all(packet.size == 1 for packet in first)
    assert is_agreement(first[0])
    assert not any(any(packet.values) for packet in first[1:])
    assert all((packet.msg_type, packet.lease, packet.e0, packet.e1) == (UPDATE, 7, 1, 0) for packet in first)


def test_chunk_i_carries_block_i_minus_b_and_announces_block_i() -> None:
    worker = numpy_worker(LEASE)
    x = np.exp2(np.arange(6)).repeat(64).astype(np.float32)  # block j is all 2^j: exponent j + 1
    worker.start(x, 0.0)
    packets = sent(worker, 0.0)
    assert [packet.e0 for packet in packets] == [1, 2, 3, 4]
    answer(worker, packets, 0.01)
    packets = sent(worker, 0.01)
    assert [packet.chunk for packet in packets] == [4, 5, 6, 7]
    assert [packet.e0 for packet in packets] == [5, 6, -128, -128]
    for packet in packets:
        factor = (2**31 - 1) / 2 * 2.0 ** -(packet.chunk - 4 + 1)
        assert set(packet.values) == {round(2.0 ** (packet.chunk - 4) * factor)}


def test_vectors_as_long_as_one_before_need_one_round_trip() -> None:
    worker = numpy_worker(replace(LEASE, values=256))
    x = np.full(3 * 256, 1.5, np.float32)
    worker.start(x, 0.0)
    while not worker.finished:
        answer(worker, sent(worker, 0.0), 0.0)
    worker.finish()
    worker.start(x, 1.0)
    packets = sent(worker, 1.0)
    assert [packet.chunk for packet in packets] == [6, 7, 8]
    assert all((packet.size, packet.e0) == (3, 1) for packet in packets)
    factor = (2**31 - 1) / 2 * 2.0**-2  # for an exponent of one more than the last
    assert all(set(packet.values) == {round(1.5 * factor)} for packet in packets)
    answer(worker, packets, 1.0)
    assert worker.finished
    assert worker.finish() == pytest.approx(x)
    worker.start(x, 2.0)
    assert [packet.chunk for packet in sent(worker, 2.0)] == [9, 10, 11]


def test_blocks_whose_exponents_were_not_expected_are_sent_again_when_all_are_known() -> None:
    worker = numpy_worker(LEASE)
    x = np.exp2([0, 0, 0, 0]).repeat(64).astype(np.float32)  # exponents 1; 2 is expected next
    worker.start(x, 0.0)
    while not worker.finished:
        answer(worker, sent(worker, 0.0), 0.0)
    worker.finish()
    x = np.exp2([-1, 2, 1, -2]).repeat(64).astype(np.float32)  # exponents 0, 3, 2, -1
    worker.start(x, 0.0)
    packets = sent(worker, 0.0)
    assert [any(packet.values) for packet in packets] == [True, False, True, True]
    answer(worker, packets[::-1][:3], 0.0)
    assert not worker.finished
    assert not sent(worker, 0.0)
    answer(worker, packets[:1], 0.0)
    again = sent(worker, 0.0)
    assert [(packet.chunk, packet.e0) for packet in again] == [(12, -128), (13, -128)]
    values = [4.0 * (2**31 - 1) / 2 / 2**3, 0.25 * (2**31 - 1) / 2 / 2**-1]
    assert [set(packet.values) for packet in again] == [{round(value)} for value in values]
    answer(worker, again, 0.0)
    assert worker.finish() == pytest.approx(x)


def test_no_chunk_is_sent_before_the_result_of_the_chunk_that_had_its_slot() -> None:
    """Also where there are fewer blocks than slots, and the numbering of the lease runs on."""
    worker = numpy_worker(LEASE)
    chunk = 0
    for blocks in (1, 3, 10, 2, 4):
        worker.start(np.ones(blocks * 64, np.float32), 0.0)
        waiting: list[Packet] = []
        answered = set(range(chunk))
        while not worker.finished:
            fresh = sent(worker, 0.0)
            for packet in fresh:
                assert packet.chunk - 4 in answered | {-4, -3, -2, -1}
                assert packet.slot == 3 + packet.chunk % 4
                assert packet.version == packet.chunk // 4 % 2
            waiting += fresh
            oldest = waiting.pop(len(waiting) // 2)
            answer(worker, [oldest], 0.0)
            answered.add(oldest.chunk)
        chunk += blocks + min(blocks, 4)
        assert answered == set(range(chunk))
        worker.finish()


def test_a_retransmission_repeats_the_packet_byte_for_byte() -> None:
    worker = numpy_worker(replace(LEASE, values=256), Recovery(initial_rto=0.1))
    worker.start(np.arange(1000, dtype=np.float32), 0.0)
    announced = sent(worker, 0.0)
    answer(worker, announced[1:2], 0.01)  # chunk 5 goes: both sizes are outstanding
    (carrying,) = sent(worker, 0.01)
    again = [packet for now in (1.0, 2.0, 3.0) for packet in sent(worker, now)]
    assert again == [announced[0], announced[2], announced[3], carrying]
    assert worker.statistics.retransmissions == 4
    assert worker.statistics.datagrams_sent == 9


def test_the_deadline_is_the_next_timer_and_never_after_giving_up() -> None:
    worker = numpy_worker(LEASE, Recovery(initial_rto=0.1, max_rto=8.0, give_up=2.0))
    assert worker.deadline() is None
    worker.start(np.ones(64, np.float32), 5.0)
    assert worker.deadline() == 5.0  # something waits to be sent
    sent(worker, 5.0)
    assert worker.deadline() == pytest.approx(5.1)
    deadlines = []
    while (deadline := worker.deadline()) is not None and deadline < 7.0:
        deadlines.append(deadline)
        assert len(sent(worker, deadline)) == 1
    assert deadlines == pytest.approx([5.1, 5.3, 5.7, 6.5])
    assert worker.deadline() == 7.0


def test_two_integers_of_16_bits_share_a_word_and_the_first_packets_stay_as_they_are() -> None:
    worker = numpy_worker(replace(LEASE, values=128))
    worker.start(np.repeat(np.array([1.5, -3], np.float32), 128), 0.0)  # two blocks
    packets = sent(worker, 0.0)
    assert [(packet.size, len(packet.values)) for packet in packets] == [(1, 64), (1, 64)]
    answer(worker, packets, 0.0)
    packets = sent(worker, 0.0)
    assert [packet.size for packet in packets] == [5, 5]
    factor = (2**15 - 1) / 2
    assert [packet.values for packet in packets] == [
        (round(1.5 * factor / 2),) * 128,
        (round(-3 * factor / 4),) * 128,
    ]
    answer(worker, packets, 0.0)
    assert worker.finish() == pytest.approx(np.repeat([1.5, -3], 128), abs=4 / factor)


# -- what a worker receives


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"msg_type": UPDATE}, "malformed"),
        ({"msg_type": 5}, "malformed"),
        ({"lease": 8}, "other lease"),
        ({"slot": 4}, "malformed"),
        ({"version": 1}, "malformed"),
        ({"chunk": 9}, "unknown chunk"),
        ({"chunk": 2**32 - 1}, "unknown chunk"),
        ({"size": 3, "values": (0,) * 256}, "malformed"),
        ({"size": 5, "values": (0,) * 128}, "malformed"),
        ({"e0": 0}, "impossible"),  # the worker's own is 1
        ({"e0": -128}, "impossible"),
        ({"call": 1}, "impossible"),
    ],
)
def test_what_is_no_result_awaited_is_counted_and_ignored(changes: dict[str, object], reason: str) -> None:
    worker = numpy_worker(LEASE)
    worker.start(np.ones(640, np.float32), 0.0)
    packets = sent(worker, 0.0)
    worker.receive(result(packets[0], **changes), 0.0)
    assert worker.statistics.ignored == {reason: 1}
    assert worker.statistics.accepted == 0
    assert not sent(worker, 0.0)


def test_datagrams_of_a_strange_size_are_counted_as_malformed() -> None:
    worker = numpy_worker(LEASE)
    worker.receive(np.zeros((3, 99), np.uint8), 0.0)
    assert worker.statistics.ignored == {"malformed": 3}


def test_a_result_is_accepted_once_in_one_batch_later_and_in_the_next_all_reduce() -> None:
    worker = numpy_worker(LEASE)
    worker.start(np.ones(64, np.float32), 0.0)
    (packet,) = sent(worker, 0.0)
    worker.receive(np.repeat(result(packet), 3, axis=0), 0.0)
    assert (worker.statistics.accepted, worker.statistics.ignored) == (1, {"duplicate": 2})
    worker.receive(result(packet), 0.0)
    assert worker.statistics.ignored == {"duplicate": 3}
    answer(worker, sent(worker, 0.0), 0.0)
    worker.finish()
    worker.start(np.ones(64, np.float32), 0.0)
    sent(worker, 0.0)
    worker.receive(result(packet), 0.0)
    assert worker.statistics.ignored == {"duplicate": 4}


def test_results_may_come_in_any_order_and_in_one_batch() -> None:
    worker = numpy_worker(LEASE)
    x = np.arange(500, dtype=np.float32)
    worker.start(x, 0.0)
    while not worker.finished:
        batch = np.concatenate([result(packet) for packet in sent(worker, 0.0)[::-1]])
        worker.receive(batch, 0.0)
    assert worker.finish() == pytest.approx(x, abs=1e-5)


def test_a_saturated_result_is_counted_and_raised_at_the_end_and_the_lease_goes_on() -> None:
    for policy in ("raise", "count"):
        worker = numpy_worker(LEASE, on_saturation=policy)
        worker.start(np.ones(64, np.float32), 0.0)
        answer(worker, sent(worker, 0.0), 0.0)
        worker.receive(result(sent(worker, 0.0)[0], saturated=True), 0.0)
        assert worker.finished
        assert worker.statistics.saturated == 1
        if policy == "raise":
            with pytest.raises(SaturationError, match="rank 0, lease 7: 1 results of all-reduce 1 saturated"):
                worker.finish()
        else:
            worker.finish()
        worker.start(np.ones(64, np.float32), 0.0)
        answer(worker, sent(worker, 0.0), 0.0)
        answer(worker, sent(worker, 0.0), 0.0)
        worker.finish()


# -- workers that do not agree


DIFFERENT = {
    "length": ({}, 1001),
    "length of as many blocks": ({}, 990),
    "window": ({"window": 5}, 1000),
    "values": ({"values": 256}, 1000),
    "workers": ({"workers": 4}, 1000),
}


@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
@pytest.mark.parametrize("what", DIFFERENT)
def test_the_first_vector_of_a_length_says_at_once_what_is_not_the_same_with_all(
    what: str, engine: Callable[[State], Engine]
) -> None:
    changes, length = DIFFERENT[what]
    network = Network([2, 1], window=4)
    other = replace(network.workers[2].lease, **changes)
    network.workers[2] = Worker(other, engine=engine)
    inputs = [np.ones(1000, np.float32), np.ones(1000, np.float32), np.ones(length, np.float32)]
    named = {"length of as many blocks": "elements", "length": "elements", "values": "values in a packet"}
    with pytest.raises(
        MismatchError, match=f"do not agree: .*{named.get(what, what)}: .* here, .* on average"
    ):
        network.all_reduce(inputs)
    assert not any(worker.finished for worker in network.workers)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
@pytest.mark.parametrize("lengths", [(100, 64), (64, 100), (100, 70), (100, 101), (100, 300)])
def test_vectors_of_lengths_seen_before_are_not_added_up_if_they_differ(
    lengths: tuple[int, int], engine: Callable[[State], Engine]
) -> None:
    """They carry values at once: the switches tell them apart by their tags."""
    network = Network([2], window=4, engine=engine)
    for length in (64, 100, 70):
        network.all_reduce([np.ones(length, np.float32)] * 2)
    with pytest.raises((StallError, MismatchError)):
        network.all_reduce([np.ones(length, np.float32) for length in lengths])
    assert not any(worker.finished for worker in network.workers)


@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
@pytest.mark.parametrize("length", [100, 1000])  # at most as many blocks as there are slots, and more
def test_vectors_for_different_things_are_not_added_up(
    length: int, engine: Callable[[State], Engine]
) -> None:
    """The first time all are told what is not the same; later the tags, or the first packets, differ."""
    inputs = [np.ones(length, np.float32)] * 2
    with pytest.raises(MismatchError, match=r"do not agree: (this|that) here, something else on others$"):
        Network([2], window=4, engine=engine).all_reduce(inputs, calls=("this", "that"))
    network = Network([2], window=4, engine=engine)
    for call in ("this", "that", "this"):
        network.all_reduce(inputs, calls=(call, call))
    with pytest.raises((StallError, MismatchError)):
        network.all_reduce(inputs, calls=("this", "that"))
    assert not any(worker.finished for worker in network.workers)


@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
def test_every_packet_but_that_of_an_agreement_says_which_call_it_belongs_to(
    engine: Callable[[State], Engine],
) -> None:
    network = Network([1], window=3, engine=engine)

    def calls(elements: int) -> list[int]:
        before = len(network.sent)
        network.all_reduce([np.ones(elements, np.float32)])
        return [Packet.decode(datagram).call for datagram in network.sent[before:]]

    agreement, *first = calls(150)
    assert agreement == NO_CALL
    again = calls(150)
    assert [len(set(found)) for found in (first, again)] == [1, 1]
    assert len({NO_CALL, *first, *again, *calls(150), *calls(140)[1:]}) == 5


@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
def test_a_worker_remembers_so_many_lengths_and_forgets_the_oldest(engine: Callable[[State], Engine]) -> None:
    network = Network([1], window=3, engine=engine)

    def is_delayed(elements: int) -> bool:
        before = len(network.sent)
        network.all_reduce([np.ones(elements, np.float32)])
        return Packet.decode(network.sent[before]).call != NO_CALL

    lengths = range(1, MAX_CACHED_LENGTHS + 2)
    assert not any(is_delayed(length) for length in lengths)
    assert all(is_delayed(length) for length in lengths[1:])
    assert not is_delayed(lengths[0])


@pytest.mark.parametrize("engine", [NumpyEngine, fastest])
@pytest.mark.parametrize("seen", [0, 1])
def test_what_follows_a_call_that_one_worker_has_refused_is_not_added_to_it(
    seen: int, engine: Callable[[State], Engine]
) -> None:
    """It was: 210 came for 30, without an error, where a script caught the ValueError and went on."""
    network = Network([2], window=4, engine=engine)
    for _ in range(seen):
        network.all_reduce([np.ones(100, np.float32)] * 2)
    with pytest.raises(ValueError, match="element 0 is nan"):
        network.workers[1].start(np.full(100, np.nan, np.float32), network.now)
    with pytest.raises(StallError if seen else MismatchError):
        network.all_reduce([np.full(100, 10, np.float32), np.full(100, 200, np.float32)])
    assert not any(worker.finished for worker in network.workers)


# -- numbers that cannot be summed


@pytest.mark.parametrize("bad", [np.nan, -np.inf, 2.0**127])
def test_a_number_that_cannot_be_quantized_is_refused_before_anything_is_sent(bad: float) -> None:
    worker = numpy_worker(LEASE)
    x = np.ones((3, 100), np.float32)
    x[1, 50] = bad
    with pytest.raises(ValueError, match="element 150 is"):
        worker.start(x, 0.0)
    assert not worker.datagrams_to_send(0.0)
    worker.start(np.ones(64, np.float32), 0.0)
    assert [packet.chunk for packet in sent(worker, 0.0)] == [0]


@pytest.mark.parametrize("window", [2, 5])
def test_asked_to_propagate_the_blocks_at_fault_become_nan_on_every_worker(window: int) -> None:
    network = Network([2, 1], window=window, faults=Faults(loss=0.1), non_finite="propagate")
    clean, faulty = gradients(3, 300, seed=9), gradients(3, 300, seed=9)
    faulty[1][70] = np.nan
    faulty[2][299] = -np.inf
    sums = ExactSums(64, window)
    for inputs in (faulty, faulty, clean, faulty):
        expected = sums.next(inputs)
        assert np.isnan(expected).sum() == (108 if inputs is faulty else 0)
        for summed in network.all_reduce(inputs):
            np.testing.assert_array_equal(summed, expected)


# -- the caller's arrays


def test_the_result_has_the_shape_of_the_input_and_may_replace_it() -> None:
    network = Network([2], window=2)
    inputs = [x.reshape(3, 5, 20) for x in gradients(2, 300, seed=4)]
    expected = exact_sum(inputs, values=64)
    for worker, x in zip(network.workers, inputs, strict=True):
        worker.start(x, 0.0, out=x)
    for rank in range(2):
        network.send(rank)
    network.run(lambda: all(worker.finished for worker in network.workers))
    for worker, x in zip(network.workers, inputs, strict=True):
        assert worker.finish() is not None
        np.testing.assert_array_equal(x, expected)


def test_an_empty_array_needs_no_packet() -> None:
    worker = numpy_worker(LEASE)
    worker.start(np.zeros((0, 3), np.float32), 0.0)
    assert worker.finished
    assert worker.finish().shape == (0, 3)
    assert not worker.datagrams_to_send(0.0)


@pytest.mark.parametrize(
    ("x", "out", "error", "message"),
    [
        (np.ones(4), None, TypeError, "float32, not an array of float64"),
        ([1.0], None, TypeError, "float32, not list"),
        (np.ones(4, np.float32), np.ones(5, np.float32), ValueError, r"shape \(4,\)"),
        (np.ones(4, np.float32), np.ones(4), ValueError, "float32"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(x: object, out: object, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        numpy_worker(LEASE).start(x, 0.0, out)  # type: ignore[arg-type]


# -- errors that say who waits for what


def test_a_stall_says_which_worker_waits_for_which_chunks_since_when() -> None:
    worker = numpy_worker(LEASE, Recovery(initial_rto=0.5, give_up=2.0))
    worker.start(np.ones(640, np.float32), 10.0)
    answer(worker, sent(worker, 10.0)[:1], 10.25)
    sent(worker, 10.25)
    sent(worker, 11.0)
    waiting = worker.outstanding(11.0)
    assert waiting
    assert waiting.chunks == ((1, 4),)
    assert str(waiting) == (
        "rank 0 of 2, lease 7, all-reduce 1 (640 elements): 13 of 14 results missing, awaiting exponents of chunks "
        "1-4 (slots 4-3), each sent 1 to 2 times, the first 1 s ago; nothing new for 0.75 s"
    )
    with pytest.raises(StallError, match="rank 0 of 2, lease 7, all-reduce 1"):
        worker.datagrams_to_send(12.25)


def test_a_stall_without_any_result_says_that_another_worker_may_have_another_length() -> None:
    worker = numpy_worker(LEASE, Recovery(initial_rto=0.5, give_up=2.0))
    worker.start(np.ones(640, np.float32), 0.0)
    sent(worker, 0.0)
    with pytest.raises(StallError, match=r"a vector of another length .* MISMATCH"):
        worker.datagrams_to_send(2.0)


def test_a_second_all_reduce_cannot_begin_before_the_first_has_finished() -> None:
    worker = numpy_worker(LEASE)
    worker.start(np.ones(64, np.float32), 0.0)
    sent(worker, 0.0)
    with pytest.raises(CollectiveError, match="has not finished: rank 0 of 2"):
        worker.start(np.ones(64, np.float32), 0.0)
    with pytest.raises(CollectiveError, match="no all-reduce"):
        worker.finish()


def test_a_lease_whose_chunk_numbers_are_used_up_is_an_error() -> None:
    worker = numpy_worker(replace(LEASE, first_chunk=2**32 - 5))
    with pytest.raises(LeaseExhaustedError, match="has 5 of its 5 chunk numbers left"):
        worker.start(np.ones(3 * 64, np.float32), 0.0)
    worker.start(np.ones(2 * 64, np.float32), 0.0)


def test_blocks_sent_again_never_run_out_of_chunk_numbers() -> None:
    """The need for them shows when the others are summed: a lease that has too few refuses before."""
    worker = numpy_worker(replace(LEASE, first_chunk=10, last_chunk=10 + 12 - 1))
    for scale in (1.0, 1.0):
        worker.start(np.full(3 * 64, scale, np.float32), 0.0)
        while not worker.finished:
            answer(worker, sent(worker, 0.0), 0.0)
        worker.finish()
    with pytest.raises(LeaseExhaustedError, match="has 3 of its 12 chunk numbers left"):
        worker.start(np.full(3 * 64, 1e6, np.float32), 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": 0}, "lease id must be from 1 to 255, not 0"),
        ({"rank": 2}, "rank must be from 0 to 1 with 2 workers, not 2"),
        ({"workers": 0}, "workers must be from 1"),
        ({"window": 0}, "window must be at least 1"),
        ({"first_slot": 32766}, "within 0 to 32767"),
        ({"values": 65}, "values must be one of"),
        ({"values": 512, "workers": 257}, "workers must be from 1 to 256 with integers of 16 bits, not 257"),
        ({"first_chunk": -1}, "chunk numbers must be within 0 to 4294967295, not from -1"),
        ({"last_chunk": 2**32}, "not from 0 to 4294967296"),
        ({"first_chunk": 9, "last_chunk": 8}, "not from 9 to 8"),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(LEASE, **changes)
