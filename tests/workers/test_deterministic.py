"""A run that continues from a checkpoint has the bits of one that was never interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fanin.workers.communicator import Communicator
from fanin.workers.lease import Lease
from tests.workers.loopback import WINDOW, everywhere, job

N = 2
STEPS = 8
SIZE = 4 * Lease(5, 0, N, WINDOW).values  # fits into the window, so that its exponents would be expected


def trained(comm: Communicator, weights: Any, first: int) -> list[Any]:
    """The weights after each step, of gradients that depend on them and become smaller."""
    found = []
    for step in range(first, STEPS):
        x = np.random.default_rng([comm.rank, step]).normal(size=SIZE).astype(np.float32)
        weights = weights - np.float32(0.5) * comm.allreduce(2.0**-step * (x + weights), "mean")
        found.append(weights)
    return found


def run(weights: Any, first: int, *, deterministic: bool) -> list[Any]:
    with job(N, deterministic=deterministic) as (comms, _):
        ranks = everywhere(comms, lambda comm: trained(comm, weights, first))
    assert all(np.array_equal(*step) for step in zip(*ranks, strict=True))
    return ranks[0]


@pytest.mark.usefixtures("passes")
@pytest.mark.parametrize("deterministic", [True, False])
def test_only_a_deterministic_run_can_be_continued_bit_by_bit(deterministic: bool) -> None:
    start = np.zeros(SIZE, np.float32)
    whole = run(start, 0, deterministic=deterministic)
    again = run(start, 0, deterministic=deterministic)
    assert np.array_equal(whole, again)
    continued = run(whole[3], 4, deterministic=deterministic)
    assert np.array_equal(continued, whole[4:]) is deterministic
    np.testing.assert_allclose(continued, whole[4:], atol=1e-6)


@pytest.mark.usefixtures("passes")
def test_a_worker_that_is_not_deterministic_among_others_gets_an_error() -> None:
    with job(N, timeout=1.0) as (comms, _):
        comms[1]._place.worker._expects = False
        errors = everywhere(comms, _error)
    assert all("StallError" in error or "MismatchError" in error for error in errors), errors


def _error(comm: Communicator) -> str:
    try:
        for _ in range(3):
            comm.allreduce(np.ones(5, np.float32))
    except RuntimeError as error:
        return type(error).__name__
    return ""
