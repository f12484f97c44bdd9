"""Results compared: planted differences are found, chance is not, and points are matched by their settings."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fanin.experiments.results.comparison import (
    Comparison,
    Difference,
    compare,
    ratio_interval,
)
from fanin.experiments.results.files import ResultsError
from fanin.experiments.results.measured import failed_row
from fanin.experiments.scenario.settings import Settings
from tests.experiments.results.runs import LIVE, made


def noisy(median: float, count: int, seed: int = 1) -> list[float]:
    """Two in a hundred of noise."""
    values: list[float] = (median * (1 + 0.02 * np.random.default_rng(seed).standard_normal(count))).tolist()
    return values


def time_of(found: Comparison) -> Difference:
    (point,) = found.points
    return point.time


def test_a_planted_difference_is_beyond_noise_and_its_interval_holds_it() -> None:
    time = time_of(compare([made(noisy(1.0, 20), **LIVE)], [made(noisy(1.1, 20, seed=2), **LIVE)]))
    assert time.ratio == pytest.approx(1.1, rel=0.03)
    assert time.interval is not None
    assert 1 < time.interval[0] < 1.1 < time.interval[1] < 1.15
    assert time.beyond_noise


def test_less_than_noise_is_within_it() -> None:
    values = noisy(1.0, 20)
    time = time_of(compare([made(values, **LIVE)], [made(values[::-1], **LIVE)]))
    assert time.ratio == 1
    assert time.beyond_noise is False


@pytest.mark.slow
def test_the_same_is_rarely_taken_for_different() -> None:
    """One in twenty at a confidence of 95 %; percentiles of so few values err to the safe side or little beyond."""
    apart = 0
    for seed in range(100):
        low, high = ratio_interval(noisy(1.0, 10, seed), noisy(1.0, 10, 1000 + seed))
        apart += not low <= 1 <= high
    assert apart <= 10


def test_an_interval_is_the_same_each_time() -> None:
    old, new = noisy(1.0, 7), noisy(1.2, 9, seed=2)
    assert ratio_interval(old, new) == ratio_interval(old, new)


def test_of_three_values_it_reaches_from_one_extreme_to_the_other() -> None:
    assert ratio_interval([1.0, 2.0, 4.0], [3.0, 5.0, 8.0]) == (3 / 4, 8 / 1)


def test_of_fewer_than_three_nothing_can_be_said() -> None:
    time = time_of(compare([made([1.0, 1.0], **LIVE)], [made([9.0, 9.0], **LIVE)]))
    assert (time.ratio, time.interval, time.beyond_noise) == (9, None, None)


def test_in_virtual_time_the_same_seeds_leave_nothing_to_chance() -> None:
    assert time_of(compare([made([1.0])], [made([1.0])])).beyond_noise is False
    assert time_of(compare([made([1.0])], [made([1.01])])).beyond_noise is True
    assert time_of(compare([made([1.0])], [made([1.01], seed=2)])).beyond_noise is None


def test_equal_values_of_the_same_seeds_are_the_same_and_need_no_interval() -> None:
    rows = [made([1.0 + seed / 100], seed=seed) for seed in range(6)]
    (point,) = compare(rows, rows).points
    assert {(one.interval, one.beyond_noise) for one in point.differences} == {(None, False)}


def test_seeds_are_repetitions() -> None:
    before = [made([1.0 + seed / 100], seed=seed) for seed in range(6)]
    after = [made([2.0 + seed / 100], wire=2e6, seed=seed) for seed in range(6)]
    (point,) = compare(before, after).points
    time, wire, again = point.differences
    assert time.before == pytest.approx(1.025)
    assert time.beyond_noise
    assert (wire.ratio, wire.interval) == (2, (2, 2))
    assert (again.ratio, again.interval, again.beyond_noise) == (None, None, False)


def test_what_is_in_one_alone_is_listed_and_so_is_what_failed_in_one() -> None:
    ring, tree = {"algorithm": "ring"}, {"algorithm": "halving-doubling"}
    broken = failed_row(Settings.model_validate_json(made([1.0], **tree)["settings"]), "StallError: waits")
    found = compare([made([1.0]), made([1.0], **tree)], [made([1.0]), broken, made([1.0], **ring)])
    assert [one.row["algorithm"] for one in found.points] == ["in-network"]
    assert [one["algorithm"] for one in found.only_before] == ["halving-doubling"]
    assert [one["algorithm"] for one in found.only_after] == ["ring"]
    assert found.varied == ("algorithm", "transport")


def test_points_without_a_partner_say_in_what_they_differ() -> None:
    with pytest.raises(ResultsError, match=r"sets: they differ in window; .*, add --across window$"):
        compare([made([1.0], window=64)], [made([1.0], window=128)])


def test_what_may_differ_between_the_sets_does_not_keep_points_apart() -> None:
    before = [made([1.0], links={"loss": 0.0}), made([2.0], links={"loss": 0.0}, algorithm="ring")]
    after = [made([3.0], links={"loss": 0.1}), made([4.0], links={"loss": 0.1}, algorithm="ring")]
    found = compare(before, after, ["loss"])
    assert [one.time.ratio for one in found.points] == [3.0, 2.0]
    assert (found.only_before, found.only_after) == ((), ())
    assert "loss" not in found.varied


def test_what_differs_may_be_a_table_that_only_one_side_has() -> None:
    before, after = [made([1.0])], [made([2.0], links={"pause": {"xoff_bytes": 2000, "xon_bytes": 1000}})]
    with pytest.raises(ResultsError, match=r"add --across xoff_bytes,xon_bytes$"):
        compare(before, after)
    assert time_of(compare(before, after, ["xoff_bytes", "xon_bytes"])).ratio == 2


def test_flows_of_others_are_compared_where_both_sides_have_some() -> None:
    flows = {"traffic_mean_seconds": 0.1, "traffic_p99_seconds": 0.4}
    slower = {"traffic_mean_seconds": 0.2, "traffic_p99_seconds": 0.4}
    (point,) = compare([made([1.0]) | flows], [made([1.0]) | slower]).points
    assert [(one.column, one.ratio) for one in point.differences[3:]] == [
        ("traffic_mean_seconds", 2),
        ("traffic_p99_seconds", 1),
    ]
    (point,) = compare([made([1.0])], [made([1.0]) | slower]).points
    assert len(point.differences) == 3


def test_the_topology_stands_for_the_whole_network() -> None:
    wide = {"topology": {"leaf_spine": {"spines": 4, "leaves": 4, "hosts_per_leaf": 4, "rate": "100 Gb/s"}}}
    found = compare([made([1.0])], [made([2.0], **wide)], ["topology"])
    assert found.varied == ()
    assert time_of(found).ratio == 2


def test_a_set_has_one_value_of_what_may_differ() -> None:
    both = [made([1.0], links={"loss": 0.0}), made([1.0], links={"loss": 0.1})]
    with pytest.raises(ResultsError, match=r"^A has points with loss=0% and 10%.*such as --where-a loss=0%$"):
        compare(both, both[:1], ["loss"])
    with pytest.raises(ResultsError, match=r"^B has points with loss=0% and 10%.*such as --where-b loss=0%$"):
        compare(both[:1], both, ["loss"])


def test_a_setting_that_there_is_not_cannot_differ() -> None:
    with pytest.raises(ResultsError, match="--across windows: no such setting; did you mean 'window'"):
        compare([made([1.0])], [made([1.0])], ["windows"])


def test_what_an_older_fanin_did_not_know_is_taken_as_left_out() -> None:
    old = made([1.0])
    settings = json.loads(old["settings"])
    assert settings.pop("coalescing") == 4e-6
    old["settings"] = json.dumps(settings)
    assert len(compare([old], [made([1.0])]).points) == 1


def test_rows_that_do_not_tell_their_settings_are_refused() -> None:
    with pytest.raises(ResultsError, match="rows lack their settings"):
        compare([{"median_seconds": 1.0}], [made([1.0])])


@pytest.mark.parametrize("settings", ["{", "[]", 5])
def test_settings_that_cannot_be_read_are_refused(settings: object) -> None:
    with pytest.raises(ResultsError, match="settings of a row cannot be read"):
        compare([made([1.0]) | {"settings": settings}], [made([1.0])])


def test_of_a_training_the_step_is_compared_too_and_may_be_what_is_slower() -> None:
    before, after = (made([1.0]) | {"step_seconds": seconds} for seconds in (2.0, 3.0))
    found = compare([before], [after])
    (point,) = found.points
    assert point.differences[0] == Difference("step_seconds", 2.0, 3.0, 1.5, None, exact=True)
    assert point.time.column == "step_seconds"
    assert found.slower(0.4) == [point]


def test_where_only_one_side_computes_no_step_is_compared() -> None:
    (point,) = compare([made([1.0]) | {"step_seconds": 2.0}], [made([1.0])]).points
    assert "step_seconds" not in {one.column for one in point.differences}


def test_slower_is_what_has_grown_beyond_the_limit_and_beyond_noise() -> None:
    before = [made(noisy(1.0, 20), **LIVE), made([1.0, 2.0, 3.0], algorithm="ring", **LIVE)]
    after = [made(noisy(1.2, 20, seed=2), **LIVE), made([2.0, 3.0, 4.0], algorithm="ring", **LIVE)]
    found = compare(before, after)
    assert [one.row["algorithm"] for one in found.slower(0.1)] == ["in-network"]
    assert found.slower(0.3) == []
