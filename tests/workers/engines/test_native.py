"""The worker's C: the same packets, at the same times, and the same sums as numpy's, to the bit."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from fanin.native.shared import SharedError
from fanin.workers import wire
from fanin.workers.collective import CollectiveError
from fanin.workers.engines import native
from fanin.workers.engines.buffers import Buffers
from fanin.workers.engines.engine import Engine, SocketState, State
from fanin.workers.engines.native import NativeEngine
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.tensor import Tensor
from fanin.workers.values import quantization
from tests.sizes import sized
from tests.workers.faulty_network import RECOVERY, Faults, Network, memory
from tests.workers.numbers import FLOATS, WORKERS
from tests.workers.vectors import FAULTS, RACKS, SIZES, gradients

VALUES = st.sampled_from(list(wire.SIZES))  # integers in a packet

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler")


@pytest.mark.slow
@settings(max_examples=sized(50, 150))
@given(
    RACKS,
    st.integers(1, 9),
    FAULTS,
    SIZES,
    VALUES,
    st.sampled_from([1e-5, 1e-3, 1e-2]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_every_packet_every_statistic_and_every_sum_is_the_same(
    racks: list[int],
    window: int,
    faults: Faults,
    sizes: list[int],
    values: int,
    granularity: float,
    holes: bool,
    seed: int,
) -> None:
    recovery = replace(RECOVERY, granularity=granularity)

    def inputs(size: int, step: int) -> list[NDArray[np.float32]]:
        vectors = gradients(sum(racks), size, seed, step)
        if holes and size:
            vectors[step % len(vectors)][seed % size] = np.nan
        return vectors

    def history(engine: Callable[[State], Engine]) -> tuple[Any, ...]:
        network = Network(
            racks,
            window=window,
            values=values,
            faults=faults,
            recovery=recovery,
            seed=seed,
            engine=engine,
            non_finite="propagate",
        )
        sums, states = [], []
        for step, size in enumerate(sizes):
            sums.append(network.all_reduce(inputs(size, step), skew=0.01))
            states.append([memory(worker) for worker in network.workers])
        statistics = [worker.statistics for worker in network.workers]
        bounds = [worker.error_bound().tobytes() for worker in network.workers]
        return (
            network.sent,
            [[x.tobytes() for x in of_all] for of_all in sums],
            statistics,
            bounds,
            states,
            network.now,
        )

    assert history(NativeEngine) == history(NumpyEngine)


class Pair:
    """The same worker twice, with either engine; what is done to both must have one outcome."""

    def __init__(self, lease: Lease) -> None:
        self.both = [
            Worker(lease, RECOVERY, on_saturation="count", engine=engine)
            for engine in (NumpyEngine, NativeEngine)
        ]

    def do(self, what: Callable[[Worker], Any]) -> Any:
        """Return the result of both, bytes for arrays, or the error instead."""
        outcomes = []
        for worker in self.both:
            try:
                outcomes.append(what(worker))
            except (CollectiveError, ValueError) as error:
                outcomes.append(f"{type(error).__name__}: {error}")
        assert outcomes[0] == outcomes[1]
        reference, native_one = self.both
        assert memory(reference) == memory(native_one)
        assert reference.statistics == native_one.statistics
        assert reference.deadline() == native_one.deadline()
        return outcomes[0]


@pytest.mark.slow
@settings(max_examples=sized(66, 200))
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 300]),
    st.integers(1, 5),
    st.sampled_from([64, 256]),
)
def test_whatever_arrives_both_have_the_same_state_and_send_the_same(
    seed: int, workers: int, window: int, values: int
) -> None:
    """Results of chunks sent now and before, some with bytes changed, copies, datagrams of any size; NaN; silence."""
    r = Random(seed)
    pair = Pair(
        Lease(7, 0, workers, window, first_slot=3, values=values, first_chunk=r.choice([0, 5, 2**32 - 40]))
    )
    now, sent = 0.0, [bytes(270)]

    def start() -> None:
        x = np.array(
            [r.uniform(-1, 1) * 2.0 ** r.randrange(-9, 9) for _ in range(r.choice([0, 1, 64, 65, 300, 700]))]
        )
        if len(x) and r.random() < 0.2:
            x[r.randrange(len(x))] = r.choice([np.nan, np.inf, 2.0**127])
        pair.do(lambda worker: worker.start(x.astype(np.float32), now))

    def send() -> None:
        batches = pair.do(lambda w: [[row.tobytes() for row in batch] for batch in w.datagrams_to_send(now)])
        if isinstance(batches, list):
            sent.extend(datagram for batch in batches for datagram in batch)

    def receive() -> None:
        recent = sent[-2 * window :] if r.random() < 0.9 else sent
        arrived = [bytearray(r.choice(recent)) for _ in range(r.randrange(1, 6))]
        for datagram in arrived:
            datagram[0] |= wire.RESULT << 4
            if r.random() < 0.2:
                datagram[r.choice([*range(10), r.randrange(len(datagram))])] ^= 1 << r.randrange(8)
            if r.random() < 0.05:
                datagram[:] = bytes(r.randrange(2000))
        for _, group in groupby(arrived, len):
            rows = list(group)
            batch = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), -1)
            marked = r.choice([0, 0, 1, len(rows)])
            pair.do(lambda worker, marked=marked: worker.count_marks(marked))
            pair.do(lambda worker, batch=batch: worker.receive(batch, now))

    def finish() -> None:
        pair.do(lambda worker: worker.finish().tobytes())
        pair.do(lambda worker: str(worker.outstanding(now)))

    for _ in range(r.randrange(60)):
        now += r.choice([0.0, 0.001, 0.02, 0.3])
        r.choices((start, send, receive, finish), (2, 4, 6, 2))[0]()


def results(batch: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return what a switch makes of these for a job of one worker."""
    made = batch.copy()
    made[:, 0] |= wire.RESULT << 4
    return made


def test_a_vector_that_is_refused_leaves_the_sum_of_the_one_before() -> None:
    pair, x = Pair(Lease(1, 0, 1, window=4, values=64)), np.arange(100, dtype=np.float32)

    def summed(worker: Worker) -> None:
        worker.start(x, 0.0)
        while not worker.finished:
            for batch in worker.datagrams_to_send(0.0):
                worker.receive(results(batch), 0.0)

    pair.do(summed)
    assert "element 0 is nan" in pair.do(lambda worker: worker.start(np.full(100, np.nan, np.float32), 0.0))
    assert pair.do(lambda worker: worker.finish().round().tolist()) == x.tolist()


@pytest.mark.parametrize("elements", [100, 128, 700])
def test_a_copy_of_the_sum_is_written_to_once_all_of_it_is_there(elements: int) -> None:
    pair, x = Pair(Lease(1, 0, 1, window=4, values=64)), np.arange(elements, dtype=np.float32)

    def copied(worker: Worker) -> list[float]:
        copy, kept = np.full_like(x, -1), np.empty_like(x)
        buffers = Buffers(x, copy)
        buffers.keep(kept)
        worker.begin(buffers, 0.0, "")
        while not worker.finished:
            for packet in [row for batch in worker.datagrams_to_send(0.0) for row in batch.copy()]:
                assert (copy == -1).all()
                worker.receive(results(packet[None]), 0.0)
        assert worker.finish().tobytes() == kept.tobytes()
        summed: list[float] = copy.round().tolist()
        return summed

    for _ in range(2):
        assert pair.do(copied) == x.tolist()


def test_copies_of_a_result_that_tells_of_a_disagreement_are_duplicates() -> None:
    pair = Pair(Lease(1, 0, 2, window=1, values=64))

    def told(worker: Worker) -> list[int]:
        worker.start(np.ones(64, np.float32), 0.0)
        (batch,) = worker.datagrams_to_send(0.0)
        worker.receive(results(batch).repeat(3, axis=0), 0.0)
        return [worker.statistics.accepted, worker.statistics.ignored["duplicate"]]

    assert pair.do(told) == [0, 2]
    assert "the workers do not agree" in pair.do(lambda worker: worker.datagrams_to_send(0.0))


def test_a_vector_that_was_refused_leaves_nothing_behind() -> None:
    worker = Worker(Lease(1, 0, 1, window=4, values=64), engine=NativeEngine)
    worker.start(np.ones(64, np.float32), 0.0)
    while not worker.finished:
        for batch in worker.datagrams_to_send(0.0):
            worker.receive(results(batch), 0.0)
    worker.finish()
    with pytest.raises(ValueError, match="element 0 is nan"):
        worker.start(np.full(256, np.nan, np.float32), 0.0)
    worker.receive(np.zeros((1, wire.packet_dtype(64).itemsize), np.uint8), 0.0)
    assert worker.finished
    assert worker.deadline() is None
    worker.start(np.ones(256, np.float32), 0.0)
    [batch] = worker.datagrams_to_send(0.0)
    assert wire.as_packets(batch)["tsi"].tolist() == [
        2,
        3,
        4,
        5,
    ]  # the next ones of the lease, as on all workers


@given(
    arrays(
        np.float32, st.integers(1, 700), elements=st.one_of(FLOATS, st.sampled_from([np.nan, np.inf, -0.0]))
    ),
    WORKERS,
    VALUES,
)
def test_exponents_are_the_same(x: NDArray[np.float32], workers: int, values: int) -> None:
    workers = min(workers, quantization.MAX_WORKERS[wire.BITS[values]])
    blocks = -(-x.size // values)
    lease = Lease(1, 0, workers, window=blocks, values=values)
    state = State(lease, RECOVERY)
    tensor = Tensor(x.size, workers=workers, values=values, window=blocks)
    padded = np.pad(x, (0, blocks * values - x.size)).reshape(blocks, values)
    exponents, quantizable = quantization.block_exponents(padded, workers, lease.bits)
    engine = NativeEngine(state)
    buffers = Buffers(x, np.empty_like(x))
    assert len(engine.begin(tensor, buffers, 0, propagate=False)) == (blocks if quantizable.all() else 0)
    assert len(engine.begin(tensor, buffers, 0, propagate=True)) == blocks
    assert engine.quantizable.tolist() == quantizable.tolist()
    assert engine.pack(np.arange(blocks), 0.0)[0]["e0"].tolist() == exponents.tolist()


SUMS = """
import hashlib, sys
from tests.workers.faulty_network import Network
from tests.workers.vectors import gradients
from fanin.workers.engines.native import NativeEngine, library
from fanin.workers.engines.reference import NumpyEngine

engine = {"numpy": NumpyEngine, "C": NativeEngine}[sys.argv[1]]
network = Network([2, 1], window=8, values=256, seed=1, engine=engine)
sums = [network.all_reduce(gradients(3, size, 1, step)) for step, size in enumerate((5000, 1000, 1000, 7))]
print(hashlib.sha256(repr((network.sent, [[x.tobytes() for x in each] for each in sums])).encode()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the vectors of x86-64")
@pytest.mark.parametrize(
    ("target", "flag"), [("arch=x86-64", "sse2"), ("avx2", "avx2"), ("avx512f", "avx512f")]
)
def test_whatever_vectors_the_processor_has_packets_and_sums_are_the_same(target: str, flag: str) -> None:
    if flag not in Path("/proc/cpuinfo").read_text().split():
        pytest.skip(f"this processor has no {flag}")
    flags = f'-DBY_PROCESSOR=__attribute__((target("{target}")))'

    def said(engine: str) -> str:
        script = [sys.executable, "-c", SUMS, engine]
        environment = {**os.environ, "P4SWITCH_CFLAGS": flags}
        return subprocess.run(script, env=environment, capture_output=True, text=True, check=True).stdout

    assert said("C") == said("numpy")


@pytest.mark.few(1)
@pytest.mark.slow
@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_cache_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """The worker goes on without native.c and says why: a stranger's library would run with its rights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "fanin").mkdir()
    (tmp_path / "fanin").chmod(mode)
    with pytest.warns(
        UserWarning, match="continue without .*fanin cannot be trusted .*others may write to it"
    ):
        assert native.library.__wrapped__() is None
    (tmp_path / "fanin").chmod(0o700)
    assert native.library.__wrapped__() is not None


def test_a_struct_or_a_number_that_c_has_another_idea_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    link = type("Link", (ctypes.Structure,), {"_fields_": [*SocketState._fields_[::-1]]})
    monkeypatch.setitem(native._STRUCTS, "link", link)
    with pytest.raises(SharedError, match=r"^struct link\.socket: .* in C"):
        native.library.__wrapped__()
    monkeypatch.undo()
    with monkeypatch.context() as changed:
        changed.setitem(native._NUMBERS, "DIGITS", 9)
        with pytest.raises(SharedError, match=r"^DIGITS: 12 in C, 9 in Python$"):
            native.library.__wrapped__()
    monkeypatch.setattr(native, "LOSSES", native.LOSSES - {errno.EPERM})
    with pytest.raises(SharedError, match=r"^is_loss\(\): \[1, .* in C, \[12, .* in Python$"):
        native.library.__wrapped__()
