"""The draws of an emulated link follow the law that its property names, over many packets and again by seed.

The seeds are fixed, so each test sees the same packets every time; bounds are four standard deviations.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from math import sqrt
from typing import Any

import numpy as np
import pytest

from fanin.p4switch.engine.links import Burst, LinkProperties
from tests.p4switch.runtime.c_link import MICROSECOND, MILLISECOND, SECOND, CLink, numbered

pytestmark = pytest.mark.slow

COUNT = 20_000
GAP = 10 * MILLISECOND  # more than anything here delays a packet


def passed(link: CLink) -> list[tuple[int, int]]:
    """Time and number of each packet that comes out of `COUNT` packets, which are sent `GAP` apart."""
    for number in range(COUNT):
        link.run_until(number * GAP)
        link.offer(numbered(number, 60))
        link.release()
    link.run_until(2 * COUNT * GAP)
    return link.released


def delays(link: CLink) -> Any:
    """How long each packet takes, in seconds."""
    return np.array([(time - number * GAP) / SECOND for time, number in passed(link)])


def close(count: float, probability: float, of: int = COUNT) -> bool:
    """Return whether a count of independent draws is within four standard deviations."""
    return abs(count - of * probability) <= 4 * sqrt(of * probability * (1 - probability))


def uniform(values: Any, high: float) -> bool:
    """Return whether values are uniform in [0, high) (Kolmogorov and Smirnov: one in 10,000 such samples is not)."""
    if values.min() < 0 or values.max() > high + 1e-9:
        return False
    steps = np.arange(1, len(values) + 1) / len(values)
    return bool(np.abs(np.sort(values) / high - steps).max() < 2.23 / sqrt(len(values)))


@pytest.mark.few(2)
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.99])
def test_loss_is_independent(links: Any, probability: float) -> None:
    link = links(LinkProperties(loss=probability, seed=1))
    arrived = {number for _, number in passed(link)}
    lost = np.array([number not in arrived for number in range(COUNT)])
    assert close(lost.sum(), probability)
    assert link.read().lost == lost.sum()
    # That one is lost says nothing of the next: runs of losses are as many as there are first ones.
    assert close((lost[1:] & ~lost[:-1]).sum(), probability * (1 - probability), COUNT - 1)


def test_bursts_are_those_of_gilbert_and_elliott(links: Any) -> None:
    """They begin with probability 0.02 and end with 0.25: 4 packets long, geometrically, 2 in 27 of all packets."""
    link = links(LinkProperties(burst=Burst(0.02, 0.25), seed=1))
    arrived = {number for _, number in passed(link)}
    runs = [(bad, len(list(run))) for bad, run in groupby(number not in arrived for number in range(COUNT))]
    for bad, end in ((True, 0.25), (False, 0.02)):
        lengths = np.array([length for kind, length in runs if kind == bad][1:-1])
        assert abs(lengths.mean() - 1 / end) <= 4 * sqrt((1 - end) / len(lengths)) / end
        assert close((lengths == 1).sum(), end, len(lengths))
    assert link.read().burst_lost == COUNT - len(arrived) == pytest.approx(COUNT * 2 / 27, rel=0.15)


def test_within_bursts_some_are_lost(links: Any) -> None:
    link = links(LinkProperties(burst=Burst(1.0, 0.0, 0.3), seed=1))
    assert close(COUNT - len(passed(link)), 0.3)


def test_both_kinds_of_loss_are_told_apart(links: Any) -> None:
    link = links(LinkProperties(loss=0.2, burst=Burst(1.0, 0.0, 0.5), seed=1))
    arrived = len(passed(link))
    seen = link.read()
    assert close(seen.lost, 0.2)
    assert close(seen.burst_lost, 0.8 * 0.5)
    assert arrived + seen.lost + seen.burst_lost == COUNT


@pytest.mark.few(2)
@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.99])
def test_corruption_is_independent_and_flips_any_bit(links: Any, probability: float) -> None:
    """One bit of a packet, each as likely: of the 480 of these packets and of their 60 bytes' eight."""
    link = links(LinkProperties(corruption=probability, seed=1))
    passed(link)
    assert len(link.packets) == COUNT
    changes = [
        int.from_bytes(data, "big") ^ int.from_bytes(numbered(number, 60), "big")
        for number, (data, _, _) in enumerate(link.packets)
    ]
    corrupted = np.array([change != 0 for change in changes])
    assert close(corrupted.sum(), probability)
    assert link.read().corrupted == corrupted.sum()
    assert close((corrupted[1:] & ~corrupted[:-1]).sum(), probability * (1 - probability), COUNT - 1)
    places = np.array([change.bit_length() - 1 for change in changes if change])
    assert all(change & (change - 1) == 0 for change in changes)
    for bins in (480, 60, 8):
        counts = np.bincount(places // (480 // bins), minlength=bins)
        assert all(close(count, 1 / bins, len(places)) for count in counts) or len(places) < 50 * bins


def test_corruption_changes_nothing_else(links: Any) -> None:
    """Losses and duplicates are the same with it and without, and so are the times."""
    properties = LinkProperties(loss=0.2, duplication=0.2, displacement=1e-3, seed=1)
    plain, corrupting = (links(replace(properties, corruption=c)) for c in (0.0, 0.5))
    assert [time for time, _ in passed(plain)] == [time for time, _ in passed(corrupting)]


def test_duplication(links: Any) -> None:
    """The copy comes up to the displacement later, uniformly."""
    link = links(LinkProperties(duplication=0.3, displacement=4e-3, seed=1))
    late = delays(link)
    copies = late[late > 0]
    assert close(len(late) - COUNT, 0.3)
    assert link.read().duplicated == len(late) - COUNT == len(copies)
    assert uniform(copies, 4e-3)


def test_reordering(links: Any) -> None:
    """So many packets come up to the displacement later, uniformly, and the others in time."""
    link = links(LinkProperties(reordering=0.3, delay=1e-3, displacement=4e-3, seed=1))
    late = delays(link) - 1e-3
    assert len(late) == COUNT
    assert close((late > 1e-9).sum(), 0.3)
    assert link.read().reordered == (late > 1e-9).sum()
    assert uniform(late[late > 1e-9], 4e-3)


def test_reordered_packets_are_overtaken(links: Any) -> None:
    """Back to back, 10 us apart, those that come 4 ms later at most are passed by hundreds."""
    link = links(LinkProperties(reordering=0.1, displacement=4e-3, seed=1))
    for number in range(COUNT):
        link.run_until(number * 10 * MICROSECOND)
        link.offer(numbered(number, 60))
    link.run_until(SECOND)
    order = np.array([number for _, number in link.released])
    overtaken = np.maximum.accumulate(order) > order
    assert close(overtaken.sum(), 0.1 * (1 - 10e-6 / 4e-3))
    assert np.all(np.diff(order[~overtaken]) > 0)


def test_jitter(links: Any) -> None:
    link = links(LinkProperties(delay=1e-3, jitter=4e-3, seed=1))
    assert uniform(delays(link) - 1e-3, 4e-3)


def test_the_rate_and_the_queue_at_twice_the_rate(links: Any) -> None:
    """Packets of 1,250 bytes every 5 us to a link that takes 10 us for each: every other one finds the queue full."""
    link = links(LinkProperties(rate=1e9, queue_bytes=12_500, ecn_bytes=5_000))
    for number in range(COUNT):
        link.run_until(number * 5 * MICROSECOND)
        link.offer(numbered(number, 1250))
    seen = link.read()
    assert (seen.highest_bytes, seen.queue_bytes) == (12_500, pytest.approx(12_500, abs=1250))
    assert seen.queue_dropped == pytest.approx(COUNT / 2, abs=10)
    link.run_until(SECOND)
    assert set(np.diff([time for time, _ in link.released])) == {10 * MICROSECOND}


ALL = LinkProperties(
    rate=1e6,
    delay=1e-3,
    jitter=1e-3,
    loss=0.1,
    corruption=0.1,
    duplication=0.1,
    reordering=0.1,
    displacement=2e-3,
    burst=Burst(0.01, 0.2, 0.8),
    queue_bytes=1000,
)


def test_a_seed_repeats_everything(links: Any) -> None:
    once, again, other = (
        passed(links(replace(ALL, seed=seed), stream)) for seed, stream in ((7, 0), (7, 0), (8, 0))
    )
    assert once == again != other


@pytest.mark.parametrize(("seed", "stream"), [(8, 0), (7, 1), (7 + 2**32, 0)])
def test_seeds_and_ports_are_independent(links: Any, seed: int, stream: int) -> None:
    """Two links lose half each: one in four packets is lost by both."""
    first, second = (
        {number for _, number in passed(links(LinkProperties(loss=0.5, seed=s), t))}
        for s, t in ((7, 0), (seed, stream))
    )
    assert close(len(first & second), 0.25)
