"""A vector in parts, each summed along a tree of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.sizes import sized

pytestmark = pytest.mark.slow

RAILS = {
    "leaves": 4,
    "spines": 1,
    "servers_per_leaf": 2,
    "hosts_per_server": 4,
    "nics_per_server": 4,
    "rate": "3.2 Tb/s",
    "nic_rate": "100 Gb/s",
}
MORE = RAILS | {"servers_per_leaf": 3}
# With so many network cards a server, eight hosts as there; in full size more of them over fewer cards.
EIGHT = {1: {"servers_per_leaf": 1, "hosts_per_server": 2}, 2: {"servers_per_leaf": 1}, 4: {}}
CLOSE = {"links": {"delay": "300 ns"}, "coalescing": "500 ns"}


def point(trees: int, shape: dict[str, Any] = RAILS, **rest: Any) -> Settings:
    said = {"topology": {"servers": shape}, "size": "2 MB", "trees": trees, "window": 128} | CLOSE
    return Settings.model_validate(said | rest).settled


def over(cards: int) -> dict[str, Any]:
    return RAILS | {"nics_per_server": cards} | sized(EIGHT[cards], {})


@pytest.fixture(scope="module")
def alone(switch: Engine) -> dict[int, Measured]:
    """An all-reduce along one tree, and along four."""
    return {trees: run_virtual(point(trees), switch) for trees in (1, 4)}


def test_as_many_network_cards_carry_a_vector(alone: dict[int, Measured]) -> None:
    bytes_up, median = {}, {}
    for trees, measured in alone.items():
        assert measured.usage
        up = [link.bytes for link in measured.usage.links if (link.near, link.far[:4]) == ("server1", "leaf")]
        assert len(up) == trees
        bytes_up[trees], median[trees] = max(up), measured.median
    assert bytes_up[4] == pytest.approx(bytes_up[1] / 4, rel=0.1)
    assert median[4] < median[1] / 3


@pytest.mark.long
def test_over_one_network_card_nothing_is_gained(switch: Engine) -> None:
    one, four = (run_virtual(point(trees, over(1)), switch).median for trees in (1, 4))
    assert four == pytest.approx(one, rel=0.1)


@pytest.mark.few(4)
@pytest.mark.long
@pytest.mark.parametrize("cards", EIGHT)
@pytest.mark.parametrize("trees", [1, 2, 4])
def test_the_closed_form_knows_which_links_trees_share(switch: Engine, trees: int, cards: int) -> None:
    measured = run_virtual(point(trees, over(cards), size="1 MB"), switch)
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=0.1)


@settings(max_examples=sized(5, 15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    trees=st.integers(2, 16),
    elements=st.integers(16, 20_000),
    repetitions=st.integers(1, 3),
    links=st.fixed_dictionaries(
        {
            "loss": st.sampled_from([0.0, 0.02]),
            "duplication": st.sampled_from([0.0, 0.1]),
            "reordering": st.sampled_from([0.0, 0.1]),
            "displacement": st.just("20 us"),
        }
    ),
    seed=st.integers(0, 1000),
)
def test_every_part_is_summed_whatever_links_do(
    switch: Engine, trees: int, elements: int, repetitions: int, links: dict[str, Any], seed: int
) -> None:
    said = {"size": f"{elements} elements", "repetitions": repetitions, "links": links, "seed": seed}
    measured = run_virtual(point(trees, window=min(64, 1024 // trees), **said), switch)
    assert measured.violations == 0
    assert len(measured.seconds) == repetitions


BESIDE = {
    "step": {"step": {"forward": "10 us", "backward": "50 us", "bucket": "400 kB"}},
    "traffic": {"traffic": {"pattern": "poisson", "load": 0.05, "size": "20 kB", "duration": "20 us"}},
    "other_job": {"other_job": {"size": "400 kB", "window": 256}},
    "lateness": {"lateness": "5 us"},
}


@pytest.mark.few(2)
@pytest.mark.parametrize("what", BESIDE)
def test_other_tables_go_with_several(switch: Engine, what: str) -> None:
    """Half of the hosts work, and sum along two trees."""
    measured = run_virtual(
        point(2, MORE, workers=8, placement="spread", size="800 kB", **BESIDE[what]), switch
    )
    assert measured.violations == 0
    assert measured.max_abs_error > 0


def test_a_step_gains_by_several_what_an_all_reduce_gains(switch: Engine, alone: dict[int, Measured]) -> None:
    step = {"forward": "10 us", "backward": "20 us"}
    whole = {trees: run_virtual(point(trees, step=step), switch).step_seconds for trees in (1, 4)}
    assert whole[1]
    assert whole[4]
    assert whole[1] - whole[4] == pytest.approx(alone[1].median - alone[4].median, rel=0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "fault",
    [
        {"switch": "leaf1"},
        {"link": ["server1", "leaf1"], "duration": "100 us"},
        {"worker": "h1"},
    ],
)
def test_a_job_with_several_goes_on_after_a_fault(switch: Engine, fault: dict[str, Any]) -> None:
    """Its leases end together, and all of its sums are right."""
    shape = RAILS | {"leaves": 2, "spines": 2, "nics_per_server": 2, "servers_per_leaf": 2}
    said = {"faults": [{"at": "20 us", "detection": "10 us"} | fault], "min_workers": 4, "repetitions": 8}
    measured = run_virtual(point(2, shape, size="400 kB", **said), switch)
    assert measured.violations == 0
    assert len(measured.seconds) == 8
    (outcome,) = measured.faults
    assert outcome.found is not None


def test_a_model_that_is_cut_sums_each_part_along_several(switch: Engine) -> None:
    cut = {"tensor": 4, "forward": "10 us", "backward": "20 us", "micro_batches": 3, "activations": "4 KiB"}
    measured = run_virtual(point(4, MORE, window=64, parallelism=cut), switch)
    assert measured.violations == 0
    assert measured.max_abs_error > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"workers": 4, "other_job": {"size": "4 kB", "window": 600}},
            "other_job.window: together with window for each of 4 trees",
        ),
        (
            {"workers": 4, "other_job": {"size": "4 kB"}, "trees": 16, "window": 32},
            "trees: is 16, but switches make 16 sums",
        ),
        ({"world": "live"}, "trees: is virtual only"),
        ({"window": 300}, "window: is 300 for each of 4 sums at once, more than the 1,024 slots"),
        ({"size": "3 elements"}, "trees: is 4, but vectors have 3 values"),
        ({"trees": 17}, "less than or equal to 16"),
        ({"parallelism": {"tensor": 6, "forward": 1, "backward": 1, "activations": "4 B"}}, "needs 24 sums"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        point(**{"trees": 4} | change)


def test_between_hosts_there_are_no_trees() -> None:
    first, second = (point(trees, algorithm="ring") for trees in (1, 4))
    assert first.key == second.key
