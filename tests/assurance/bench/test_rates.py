"""Rates of switches, of which one gets no processor time for a while."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

from fanin.assurance.bench.switch.rates import Contender, Received, compare


def counting(counts: Sequence[int]) -> Contender:
    """A switch that has received so many packets whenever it is asked."""
    left = iter(counts)

    @contextmanager
    def running() -> Iterator[Received]:
        yield lambda: next(left)

    generator = SimpleNamespace(processor_seconds=lambda: 0.0)
    traffic = SimpleNamespace(running=lambda: nullcontext(generator), check=lambda: None)
    return Contender(running, cast("Any", traffic))


def test_a_window_in_which_nothing_came_goes_on() -> None:
    [rate] = compare([counting([7, 7, 7, 9])], rounds=1, seconds=0.001)
    assert rate.pps > 0


def test_a_window_in_which_something_came_does_not() -> None:
    [rate] = compare([counting([7, 9])], rounds=1, seconds=0.001)
    assert rate.pps > 0
