"""The worker's C: the same packets, at the same times, and the same sums as numpy's, to the bit."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from native.shared import SharedError
from tests.workers.faulty_network import RECOVERY, Faults, Network
from tests.workers.numbers import FLOATS, WORKERS
from tests.workers.vectors import FAULTS, RACKS, SIZES, gradients
from workers import native, quantization, wire
from workers.native import NativeTensor, NativeWorker
from workers.protocol import Lease, Worker

pytestmark = pytest.mark.skipif(native.library() is None, reason="no C compiler")


@settings(max_examples=150)
@given(
    RACKS,
    st.integers(1, 9),
    FAULTS,
    SIZES,
    st.sampled_from([64, 256]),
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

    def history(make_worker: type[Worker]) -> tuple[Any, ...]:
        network = Network(
            racks,
            window=window,
            values=values,
            faults=faults,
            recovery=recovery,
            seed=seed,
            make_worker=make_worker,
            non_finite="propagate",
        )
        sums = [network.all_reduce(inputs(size, step), skew=0.01) for step, size in enumerate(sizes)]
        statistics = [worker.statistics for worker in network.workers]
        bounds = [worker.error_bound().tobytes() for worker in network.workers]
        return (
            network.sent,
            [[x.tobytes() for x in of_all] for of_all in sums],
            statistics,
            bounds,
            network.now,
        )

    assert history(NativeWorker) == history(Worker)


def test_a_vector_that_was_refused_leaves_nothing_behind() -> None:
    worker = NativeWorker(Lease(1, 0, 1, window=4, values=64))
    worker.start(np.ones(64, np.float32), 0.0)
    while not worker.finished:
        for batch in worker.datagrams_to_send(0.0):
            results = batch.copy()
            results[:, 0] = wire.kind(wire.RESULT, 64)
            worker.receive(results, 0.0)
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
    st.sampled_from([64, 256]),
)
def test_exponents_are_the_same(x: NDArray[np.float32], workers: int, values: int) -> None:
    blocks = -(-x.size // values)
    padded = np.pad(x, (0, blocks * values - x.size)).reshape(blocks, values)
    exponents, quantizable = quantization.block_exponents(padded, workers)
    worker = NativeWorker(Lease(1, 0, workers, window=blocks, values=values), non_finite="propagate")
    worker.start(x, 0.0)
    tensor = worker._tensor
    assert isinstance(tensor, NativeTensor)
    assert tensor.exponents.tolist() == exponents.tolist()
    assert tensor.quantizable.tolist() == quantizable.tolist()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_cache_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """The worker goes on without native.c and says why: a stranger's library would run with its rights."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "fanin").mkdir()
    (tmp_path / "fanin").chmod(mode)
    with pytest.warns(UserWarning, match="go on without .*fanin cannot be trusted .*others may write to it"):
        assert native.library.__wrapped__() is None
    (tmp_path / "fanin").chmod(0o700)
    assert native.library.__wrapped__() is not None


def test_a_struct_or_a_number_that_c_has_another_idea_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    link = type("Link", (ctypes.Structure,), {"_fields_": [*native.Link._fields_[::-1]]})
    monkeypatch.setattr(native, "Link", link)
    with pytest.raises(SharedError, match=r"^struct link\.socket: .* in C"):
        native.library.__wrapped__()
    monkeypatch.undo()
    monkeypatch.setitem(native._SHARED_NUMBERS, "DIGITS", 9)
    with pytest.raises(SharedError, match=r"^DIGITS: 8 in C, 9 in Python$"):
        native.library.__wrapped__()
