"""The analytical model of requests in queues, against textbook cases and a simulation without a network."""

from __future__ import annotations

from heapq import heappop, heappush
from math import exp, log

import numpy as np
import pytest

from fanin.experiments.models.queues import later_than, response_quantile, waiting_share


def test_erlangs_formula_has_the_values_of_its_tables() -> None:
    assert waiting_share(0.7, 1) == pytest.approx(0.7)
    assert waiting_share(0.8, 5) == pytest.approx(0.5541, abs=1e-4)  # 4 erlangs, 5 servers
    assert waiting_share(0.5, 2) == pytest.approx(1 / 3)


@pytest.mark.parametrize("load", [0.1, 0.5, 0.9])
def test_one_slot_is_an_exponential_response(load: float) -> None:
    """In an M/M/1 queue, and so the slowest of several has a known quantile."""
    assert later_than(3.0, 2.0, load, 1) == pytest.approx(exp(-(1 - load) / 2.0 * 3.0))
    expected = -log(1 - 0.99 ** (1 / 8)) * 2.0 / (1 - load)
    assert response_quantile(0.99, 8, 2.0, load, 1) == pytest.approx(expected)


@pytest.mark.parametrize("slots", [2, 3])  # with 2, a rate of leaving is that of one service
def test_several_slots_take_as_long_as_simulated(slots: int) -> None:
    load, count, draw = 0.5, 40_000, np.random.default_rng(1)
    arrivals = np.cumsum(draw.exponential(1 / (load * slots), count))
    free = [0.0] * slots
    times = []
    for arrival, service in zip(arrivals.tolist(), draw.exponential(1.0, count).tolist(), strict=True):
        ends = max(arrival, heappop(free)) + service
        heappush(free, ends)
        times.append(ends - arrival)
    for share in (0.5, 0.95, 0.99):
        assert np.quantile(times, share) == pytest.approx(
            response_quantile(share, 1, 1.0, load, slots), rel=0.04
        )
