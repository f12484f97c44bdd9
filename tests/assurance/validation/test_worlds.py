"""What is compared between live and virtual time, and when the two agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fanin.assurance.validation.worlds import RATE, WorldComparison, point, write
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


@pytest.mark.parametrize(("seconds", "agrees"), [(1.0, True), (0.91, True), (1.09, True), (0.89, False)])
def test_times_agree_within_a_tenth(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=(seconds,))).agrees == agrees


@pytest.mark.parametrize("more", [{"wire_bytes_per_worker": 1e6 + 1}, {"packets_per_worker": 2001.0}])
def test_packets_and_bytes_agree_exactly_unless_some_are_lost(more: dict[str, float]) -> None:
    assert not comparison(replace(LIVE, **more)).agrees
    assert comparison(replace(LIVE, **more), loss=0.01).agrees


@pytest.mark.parametrize(("seconds", "agrees"), [(1.14, True), (0.84, False)])
def test_times_with_loss_may_differ_a_little_more(seconds: float, agrees: bool) -> None:
    assert comparison(replace(LIVE, seconds=(seconds,)), loss=0.01).agrees == agrees


@pytest.mark.parametrize("loss", [0.0, 0.01])
def test_both_worlds_have_the_same_work_and_timers(loss: float) -> None:
    one = point(1, 2, 2, loss)
    for name in ("size", "repetitions", "window", "values", "recovery", "seed", "algorithm", "members"):
        assert getattr(one.live, name) == getattr(one.virtual, name)
    assert one.live.links.loss == one.virtual.links.loss == loss
    assert one.virtual.network.links[0].properties.loss == loss  # live it is the program's


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
