"""The share of the time that a cause costs, alone and next to others, compared with a run without the cause."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from fanin.experiments.diagnosis.diagnose import diagnose
from fanin.experiments.results.measured import row
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

NETWORK = {
    "leaf_spine": {"leaves": 2, "hosts_per_leaf": 4, "spines": 1, "rate": "10 Gb/s", "uplink_rate": "40 Gb/s"}
}
SLOW_LINK = {"overrides": [{"link": ["h2", "leaf1"], "rate": "2.5 Gb/s"}]}
FAR = {"overrides": [{"link": ["h5", "leaf2"], "delay": "60 us"}]}
STEP = {"forward": "0.1 ms", "backward": "0.2 ms", "bucket": "80 kB"}
LOSS = {"loss": 0.01}
TIMERS = {"initial_rto": "300 us", "min_rto": "300 us", "packet_threshold": 64}


def run(switch: Engine, **given: Any) -> tuple[dict[str, Any], Usage]:
    settings = Settings.model_validate(
        {"topology": NETWORK, "size": "320 kB", "repetitions": 4} | given
    ).settled
    measured = run_virtual(settings, switch)
    assert measured.usage is not None
    return row(settings, measured), measured.usage


def shares(switch: Engine, **given: Any) -> dict[str, float]:
    found = diagnose(*run(switch, **given))
    return {finding.cause: finding.share for finding in (*found.findings, *found.minor)}


def cost(switch: Engine, given: dict[str, Any], without: dict[str, Any]) -> float:
    """The share of the time that a change saves: the median of three seeds, as losses are random."""
    times = [
        median(run(switch, **one | {"seed": seed})[1].seconds for seed in (1, 2, 3))
        for one in (given, given | without)
    ]
    return 1 - times[1] / times[0]


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize(
    ("cause", "given", "without"),
    [
        ("slow link", {"topology": NETWORK | SLOW_LINK}, {"topology": NETWORK}),
        ("latency", {"topology": NETWORK | FAR}, {"topology": NETWORK}),
        ("straggler", {"step": STEP | {"stragglers": [{"host": "h3", "factor": 3}]}}, {"step": STEP}),
        # Next to another cause:
        (
            "straggler",
            {"topology": NETWORK | SLOW_LINK, "step": STEP | {"stragglers": [{"host": "h3", "factor": 3}]}},
            {"step": STEP},
        ),
        (
            "slow link",
            {"topology": NETWORK | SLOW_LINK, "step": STEP | {"stragglers": [{"host": "h3", "factor": 2}]}},
            {"topology": NETWORK},
        ),
        (
            "slow link",
            {"topology": NETWORK | SLOW_LINK, "step": STEP | {"loading": "0.2 ms"}},
            {"topology": NETWORK},
        ),
    ],
)
def test_in_steps_a_cause_costs_what_is_not_hidden_behind_others(
    switch: Engine, algorithm: str, cause: str, given: dict[str, Any], without: dict[str, Any]
) -> None:
    given = {"step": STEP, "algorithm": algorithm} | given
    assert shares(switch, **given)[cause] == pytest.approx(cost(switch, given, without), abs=0.1)


def test_delays_next_to_a_slow_link_are_named(switch: Engine) -> None:
    """The analytical model between hosts takes links of one rate."""
    far, near = ({"links": {"delay": delay}} for delay in ("40 us", "1 us"))
    given = {"topology": NETWORK | SLOW_LINK, "algorithm": "ring", "size": "200 kB"} | far
    assert cost(switch, given, near) > 0.4
    assert shares(switch, **given)["latency"] > 0.2


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_workers_that_are_all_late_delay_the_first_one(switch: Engine, algorithm: str) -> None:
    given = {"algorithm": algorithm, "lateness": "0.3 ms"}
    assert shares(switch, **given)["straggler"] == pytest.approx(
        cost(switch, given, {"lateness": 0}), abs=0.1
    )


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_lost_packets_cost_more_in_many_buckets(switch: Engine, algorithm: str) -> None:
    """Each bucket waits for timers of its own."""
    given = {"links": LOSS, "recovery": TIMERS, "algorithm": algorithm, "step": STEP | {"bucket": "4 kB"}}
    assert cost(switch, given, {"step": STEP | {"bucket": "320 kB"}}) > 0.4
    found = shares(switch, **given)
    assert found["loss"] > 0.4
    assert found["small buckets"] > 0.4


@pytest.mark.parametrize("size", ["320 kB", "800 kB"])
def test_lost_packets_cost_more_with_a_small_window(switch: Engine, size: str) -> None:
    """While it waits for one packet, no other may be sent."""
    given = {
        "links": LOSS | {"delay": "5 us"},
        "recovery": TIMERS,
        "algorithm": "ring",
        "size": size,
        "window": 4,
    }
    assert cost(switch, given, {"window": 64}) > 0.4
    found = shares(switch, **given)
    assert found["loss"] > 0.4
    assert found["window"] > 0.4
