"""The table `congestion`: what of it is in effect, in runs and in their rows, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 2, "rate": "25 Gb/s", "uplink_rate": "25 Gb/s"}


def point(**changes: Any) -> Settings:
    document = {
        "topology": {"leaf_spine": RACKS},
        "size": "400 kB",
        "algorithm": "ring",
        "placement": "spread",
    }
    return Settings.model_validate(document | changes).settled


@pytest.mark.slow
def test_a_ring_over_a_narrow_uplink_is_marked_and_slows_down_as_its_control_says(switch: Engine) -> None:
    seconds = {}
    for control in ("none", "dctcp", "dcqcn", "dcqcn-paper", "dcqcn-ns3"):
        settings = point(congestion={"control": control}, links={"ecn_bytes": "10 kB"})
        found = row(settings, run_virtual(settings, switch))
        assert found["violations"] == 0
        assert found["link_ecn_marks"] > 0
        seconds[control] = found["median_seconds"]
    assert len(set(seconds.values())) == 5
    # A shorter queue may save a little time as well.
    assert min(seconds.values()) > 0.99 * seconds["none"]
    assert seconds["dctcp"] < seconds["dcqcn-paper"]


def test_a_row_has_the_parameters_in_effect_those_of_the_preset_and_those_given(switch: Engine) -> None:
    settings = point(congestion={"control": "dcqcn-paper", "increase_interval": "70 us"})
    found = row(settings, run_virtual(settings, switch))
    assert found["congestion_control"] == "dcqcn-paper"
    assert found["congestion_increase_interval"] == 70e-6
    assert found["congestion_decrease_interval"] == 50e-6
    assert found["congestion_additive_rate"] == 5_000_000  # of 25 Gb/s
    plain = point()
    assert row(plain, run_virtual(plain, switch))["congestion_additive_rate"] is None


def test_a_row_has_those_of_dctcp(switch: Engine) -> None:
    settings = point(congestion={"min_window": 1, "initial_window": 4})
    found = row(settings, run_virtual(settings, switch))
    assert found["congestion_gain"] == 1 / 16
    assert found["congestion_initial_alpha"] == 1
    assert (found["congestion_min_window"], found["congestion_initial_window"]) == (1, 4)
    assert found["congestion_increase"] == "unmarked"


def test_a_ring_whose_windows_begin_small_takes_longer(switch: Engine) -> None:
    settings = (
        point(),
        point(congestion={"initial_window": 2}),
        point(congestion={"initial_window": 2, "ssthresh": 2}),
    )
    window, slow_start, additive = (run_virtual(one, switch).median for one in settings)
    assert window < slow_start < additive


def test_a_preset_grows_with_the_link() -> None:
    slow, fast = (Congestion(control="dcqcn").dcqcn(rate) for rate in (25e9, 400e9))
    assert slow is not None
    assert fast is not None
    assert fast.additive_rate == pytest.approx(16 * slow.additive_rate)


def test_it_is_no_setting_where_nothing_is_sent_between_hosts() -> None:
    dcqcn = {"control": "dcqcn"}
    assert point(congestion=dcqcn, algorithm="in-network").congestion == Congestion()
    traffic = {"pattern": "permutation", "size": "1 kB"}
    assert (
        point(congestion=dcqcn, algorithm="in-network", traffic=traffic, workers=2).congestion != Congestion()
    )


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"congestion": {"min_rate": 1}},
            "min_rate: is a parameter of DCQCN; leave it out, or set control = 'dcqcn'",
        ),
        (
            {"congestion": {"control": "dcqcn-ns3", "ssthresh": 1}},
            "ssthresh: is a parameter of DCTCP; leave it out, or set control = 'dctcp'",
        ),
        (
            {"congestion": {"control": "none", "gain": 1}},
            "gain: is a parameter of DCTCP; leave it out, or set control = 'dctcp'",
        ),
        ({"congestion": {"increase": "never"}}, "congestion.increase"),
        ({"congestion": {"control": "cubic"}}, "congestion.control"),
        ({"congestion": {"control": "dcqcn", "alpha_interval": 0}}, "congestion.alpha_interval"),
        (
            {"congestion": {"control": "dcqcn"}, "topology": {"leaf_spine": {}}},
            "congestion.control: DCQCN starts at the rate of a host's link; set the topology's rate",
        ),
        (
            {"congestion": {"control": "none"}, "world": "live"},
            "congestion: is virtual only; leave it out, or set world = 'virtual'",
        ),
        (
            {"links": {"ecn_bytes": 1, "ecn_max_bytes": 2}, "world": "live"},
            "links.ecn_max_bytes: is virtual only; leave it out, or set world = 'virtual'",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        point(**changes)
    assert complaint in str(caught.value)
