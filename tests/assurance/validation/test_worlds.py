"""The figures that are compared between live and virtual time, and when the two agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.assurance.validation.worlds import POINTS, RATE, WorldComparison, point, write
from fanin.experiments.results.files import read_rows
from fanin.experiments.results.measured import Measured
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

BLOCKS = 100
LIVE = Measured(
    seconds=(0.9, 1.0, 1.1),
    elements=200_000,
    wire_bytes_per_worker=1e6,
    packets_per_worker=2000.0,
    retransmissions=6,
    drops={"lost": 3},
    link_events={"lost": 0},
    violations=0,
    max_abs_error=1e-8,
    error_bound=2e-8,
    checked_share=1.0,
    closed_form_seconds=0.9,
)


def comparison(virtual: Measured, loss: float = 0.0) -> WorldComparison:
    return WorldComparison(point(0, 1, 2, loss), LIVE, virtual)


@pytest.mark.parametrize(("seconds", "agrees"), [(1.0, True), (0.96, True), (1.04, True), (0.94, False)])
def test_times_agree_within_a_twentieth(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=(seconds,))).agrees == agrees


@pytest.mark.parametrize("more", [{"wire_bytes_per_worker": 1e6 + 1}, {"packets_per_worker": 2001.0}])
def test_packets_and_bytes_agree_exactly_unless_some_are_lost(more: dict[str, float]) -> None:
    assert not comparison(replace(LIVE, **more)).agrees
    assert comparison(replace(LIVE, **more), loss=0.01).agrees


def test_between_hosts_packets_may_differ_and_times_may_not() -> None:
    ring = point(0, 1, 4, algorithm="ring")
    more = replace(LIVE, packets_per_worker=2100.0)
    assert WorldComparison(ring, LIVE, more).agrees
    assert not WorldComparison(ring, LIVE, replace(more, seconds=(1.06,))).agrees


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_both_worlds_have_the_same_work_and_timers(loss: float) -> None:
    one = point(1, 2, 2, loss)
    for name in ("size", "repetitions", "window", "values", "recovery", "seed", "algorithm", "members"):
        assert getattr(one.live, name) == getattr(one.virtual, name)
    assert one.live.links.loss == one.virtual.links.loss == loss
    assert one.virtual.network.links[0].properties.loss == loss  # live it is the program's


def test_twenty_points_are_compared() -> None:
    assert len(POINTS) == 20
    assert len({str(one.live) for one in POINTS}) == 20


def test_virtual_time_is_that_of_the_closed_form(switch: Engine) -> None:
    settings = point(0, 1, 2, elements=256 * BLOCKS, repetitions=1).virtual
    measured = run_virtual(settings, switch)
    assert measured.retransmissions == 0
    assert measured.median == pytest.approx(measured.closed_form_seconds, rel=0.02)
    # Both ways, and the barrier: two chunks of one value, the first without values.
    window = settings.window
    assert window is not None
    assert measured.packets_per_worker == 2 * (window + BLOCKS + 2)
    assert measured.wire_bytes_per_worker == 2 * ((window + 1) * 312 + (BLOCKS + 1) * 1080)
    bytes_alone = 8 * (window * 312 + BLOCKS * 1080) / RATE
    assert bytes_alone < measured.median < 1.05 * bytes_alone


def test_the_links_lose_what_both_ways_send(switch: Engine) -> None:
    settings = point(0, 1, 2, loss=0.05, elements=256 * BLOCKS, repetitions=1).virtual
    lossy = run_virtual(settings, switch)
    assert settings.window is not None
    assert lossy.closed_form_seconds is not None
    # A lost update keeps its sum from both workers, a lost result from one: each is sent again.
    at_least = 0.05 * (BLOCKS + settings.window) * (2 * 2 + 2)
    assert at_least / 2 < lossy.retransmissions < 2 * at_least
    assert lossy.median > 1.05 * lossy.closed_form_seconds


def test_the_summary_keeps_its_keys_and_both_worlds_have_rows(tmp_path: Path) -> None:
    write([comparison(replace(LIVE, packet_hops=7))], tmp_path)
    (found,) = json.loads((tmp_path / "summary.json").read_text())["points"]
    sides = (
        "topology",
        "algorithm",
        "rate",
        "workers",
        "loss",
        "elements",
        "live",
        "virtual",
        "closed_form",
        "deviation",
        "agrees",
    )
    assert tuple(found) == sides
    side = {"seconds": 1.0, "wire_packets": 2000.0, "wire_bytes": 1e6, "retransmissions": 2.0}
    assert found["live"] == found["virtual"] == side
    assert [row["world"] for row in read_rows(tmp_path)] == ["live", "virtual"]
