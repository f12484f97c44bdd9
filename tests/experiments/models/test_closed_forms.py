"""Bytes and formulas say the same as schedules and closed forms."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.experiments.models.closed_forms import bytes_each_way, formula, in_network
from fanin.workers.collective import Algorithm, HostBasedAlgorithm
from fanin.workers.host_based.algorithms.all_reduce import PIECE, Hosts
from fanin.workers.host_based.algorithms.registry import ALGORITHMS, algorithm_named, algorithm_names
from fanin.workers.host_based.schedules import schedule

ELEMENTS = 27720  # which every number of workers below divides: 4 bytes each


@pytest.mark.parametrize("workers", [2, 3, 4, 5, 6, 7, 8, 11, 12])
@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_the_busiest_host_sends_and_receives_what_its_schedule_says(
    algorithm: HostBasedAlgorithm, workers: int
) -> None:
    plans = [schedule(algorithm, rank, workers, ELEMENTS) for rank in range(workers)]
    sent = max(sum(p.stop - p.start for ps in plan.sends.values() for p in ps) for plan in plans)
    received = max(sum(p.stop - p.start for ps in plan.receives.values() for p in ps) for plan in plans)
    assert sent == received
    assert bytes_each_way(algorithm, workers, 4 * ELEMENTS) == pytest.approx(4 * sent, rel=1e-3)


@given(
    algorithm=st.sampled_from(algorithm_names()),
    workers=st.integers(2, 70),
    size=st.integers(1, 10**12),
    bandwidth=st.floats(1e6, 1e12),
    latency=st.floats(1e-6, 1.0),
)
def test_the_formula_that_people_read_gives_what_the_closed_form_does(
    algorithm: Algorithm, workers: int, size: int, bandwidth: float, latency: float
) -> None:
    if algorithm == "in-network":
        seconds = in_network(size, latency, bandwidth, window=size, ahead=0.0)
    else:
        seconds = algorithm_named(algorithm).seconds(size, Hosts(workers, lambda *_: latency, bandwidth))
    numbers = {"n": workers, "S": size, "B": bandwidth, "L": latency, "p": PIECE, "max": max, "log2": log2}
    assert eval(formula(algorithm, workers).replace("·", "*"), numbers) == pytest.approx(seconds)
