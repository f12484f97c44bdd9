"""The causes that slow down the steps of a model that is cut into parts."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.diagnosis.diagnose import diagnose
from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

CUT = {
    "pipeline": 4,
    "layers": 4,
    "micro_batches": 16,
    "forward": "0.2 ms",
    "backward": "0.4 ms",
    "activations": "16 KiB",
}
# Steps in which a link of 40 Gb/s sends for less than a hundredth of the time.
LONG = {
    "micro_batches": 8,
    "forward": "0.64 ms",
    "backward": "1.28 ms",
    "activations": "8 KiB",
    "bucket": "24 kB",
}
NETWORK = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "6.25 Gb/s", "uplink_rate": "25 Gb/s"}


@pytest.mark.few(5)
@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
@pytest.mark.parametrize(
    ("cause", "cut", "overrides", "links"),
    [
        ("communication", {}, [], {}),
        ("communication", {"stragglers": [{"host": "h3", "factor": 1.1}]}, [], {}),
        ("straggler", {"stragglers": [{"host": "h3", "factor": 2.0}]}, [], {}),
        ("straggler", {"pipeline": 1, "stragglers": [{"host": "h3", "factor": 2.0}]}, [], {}),
        ("communication", {"bucket": "25 kB"}, [], {}),
        ("straggler", {"bucket": "25 kB", "stragglers": [{"host": "h3", "factor": 2.0}]}, [], {}),
        ("slow link", {"bucket": "25 kB"}, [{"link": ["h2", "leaf1"], "rate": "0.625 Gb/s"}], {}),
        ("loss", {"bucket": "25 kB"}, [], {"loss": 0.02}),
        ("slow link", {}, [{"link": ["h2", "leaf1"], "rate": "0.625 Gb/s"}], {}),
        ("loss", {}, [], {"loss": 0.02}),
    ],
)
def test_the_cause_is_named(
    switch: Engine,
    algorithm: str,
    cause: str,
    cut: dict[str, Any],
    overrides: list[dict[str, Any]],
    links: dict[str, Any],
) -> None:
    said = {
        "topology": {"leaf_spine": NETWORK, "overrides": overrides},
        "algorithm": algorithm,
        "size": "1 MB",
        "coalescing": "16 us",
        "links": links,
        "parallelism": CUT | cut,
    }
    settings = Settings.model_validate(said).settled
    measured = run_virtual(settings, switch)
    found = diagnose(row(settings, measured), measured.usage)
    assert found.cause == cause
    assert found.limit.startswith("workers computed for ")
    if cause == "straggler":
        assert found.findings[0].evidence.startswith("h3 computed for ")


@pytest.mark.slow
def test_a_slow_link_is_found_where_the_others_hardly_send(switch: Engine) -> None:
    said = {
        "topology": {
            "leaf_spine": NETWORK | {"rate": "40 Gb/s", "uplink_rate": "160 Gb/s"},
            "overrides": [{"link": ["h2", "leaf1"], "rate": "1 Gb/s"}],
        },
        "algorithm": "ring",
        "size": "480 kB",
        "parallelism": CUT | LONG,
    }
    settings = Settings.model_validate(said).settled
    measured = run_virtual(settings, switch)
    found = diagnose(row(settings, measured), measured.usage)
    assert {finding.cause for finding in found.findings} == {"pipeline bubble", "slow link"}
