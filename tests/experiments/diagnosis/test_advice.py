"""Advice of a diagnosis, carried out word for word: the setting that it names, with the value that it names."""

from __future__ import annotations

import re
from dataclasses import replace
from statistics import median
from typing import Any

import pytest

from fanin.experiments.diagnosis.diagnose import Diagnosis, diagnose
from fanin.experiments.results.measured import Measured, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.workload import Workload
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.experiments.diagnosis.planted_steps import plant_step
from tests.sizes import sized

pytestmark = pytest.mark.slow

# Servers of four GPUs, which share a network card, as in docs/measurements/diagnosis.md.
SERVERS = {"leaves": 1, "spines": 0, "servers_per_leaf": 2, "hosts_per_server": 4, "rate": "2400 Gb/s"}


def run(given: dict[str, Any], switch: Engine) -> tuple[Measured, Diagnosis]:
    settings = Settings.model_validate(given).settled
    measured = run_virtual(settings, switch)
    return measured, diagnose(row(settings, measured), measured.usage)


def with_changes(settings: Settings, changes: dict[str, Any]) -> Settings:
    return Settings.model_validate(settings.model_dump(mode="json") | changes).settled


def of_a_model(workload: dict[str, Any]) -> dict[str, Any]:
    shape = {"leaves": 1, "spines": 0, "hosts_per_leaf": 2, "rate": "100 Gb/s"}
    filled = Workload.model_validate(workload).filled_in(None)
    return {"topology": {"leaf_spine": shape}, "workload": workload, **filled}


def step_seconds(measured: Measured) -> float:
    assert measured.usage is not None
    return measured.usage.seconds / len(measured.usage.workers[0].began)


@pytest.mark.few(4)
@pytest.mark.parametrize("backward", ["0 ms", "0.2 ms", "0.6 ms"])
@pytest.mark.parametrize("window", [64, 512])
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_a_window_is_no_cause_where_the_narrowest_link_is_full(
    switch: Engine, algorithm: str, window: int, backward: str
) -> None:
    """At the hosts' rate, a window takes 2 us to send; at their network card's, 176."""
    given = {
        "topology": {"servers": SERVERS | {"nic_rate": "25 Gb/s"}},
        "size": "2 MB",
        "window": window,
        "algorithm": algorithm,
        "step": {"forward": "0.1 ms", "backward": backward},
    }
    _, found = run(given, switch)
    assert "window" not in {finding.cause for finding in (*found.findings, *found.minor)}


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "computing", [{}, {"step": {"forward": "0.02 ms", "backward": "0.1 ms"}}], ids=["sums", "steps"]
)
@pytest.mark.parametrize(
    ("rate", "delay", "window"),
    [("100 Gb/s", "2 us", 32), ("400 Gb/s", "2 us", 64), ("400 Gb/s", "50 us", 1024)],
)
def test_the_window_that_is_advised_gains_what_is_promised(
    switch: Engine, rate: str, delay: str, window: int, computing: dict[str, Any]
) -> None:
    given = {
        "topology": {"servers": SERVERS | {"nic_rate": rate}},
        "links": {"delay": delay},
        "size": "8 MB",
        "window": window,
        **computing,
    }
    before, found = run(given, switch)
    named = next(finding for finding in found.findings if finding.cause == "window")
    if window == 1024:
        assert "1,024 is the largest window" in named.change
        return
    advised = re.search(r"window of ([0-9,]+) packets", named.change)
    assert advised is not None
    after, _ = run(given | {"window": int(advised[1].replace(",", ""))}, switch)
    gain = 1 - step_seconds(after) / step_seconds(before)
    assert gain == pytest.approx(named.share, abs=0.1)


def test_advice_on_buckets_of_a_model_is_on_the_scale_of_the_model(switch: Engine) -> None:
    """Followed, it makes the step as short as it predicts, and there is no more of it."""
    workload = {"model": "llama-3-8b", "dtype": "bf16", "scale": 0.0002}
    before, found = run(of_a_model(workload), switch)
    named = next(finding for finding in (*found.findings, *found.minor) if "buckets" in finding.cause)
    advised = re.search(r"set workload.bucket = '([^']+)' \(DDP: bucket_cap_mb=(\d+)\)", named.change)
    predicted = re.search(r"a step of ([0-9,]+) us", named.evidence)
    assert advised is not None
    assert predicted is not None
    after, then = run(of_a_model(workload | {"bucket": advised[1]}), switch)
    assert step_seconds(after) == pytest.approx(1e-6 * float(predicted[1].replace(",", "")), rel=0.1)
    assert step_seconds(after) < step_seconds(before)
    assert not [finding for finding in then.findings if "buckets" in finding.cause]


def test_in_network_aggregation_is_not_advised_where_it_runs(switch: Engine) -> None:
    given = {
        "topology": {"servers": SERVERS | {"nic_rate": "25 Gb/s"}},
        "size": "2 MB",
        "algorithm": "in-network",
    }
    _, found = run(given, switch)
    named = next(finding for finding in found.findings if finding.cause == "oversubscription")
    assert "in-network aggregation" not in named.change
    assert "nic_rate" in named.change


def test_more_micro_batches_of_a_cut_model_shorten_a_step_as_promised(switch: Engine) -> None:
    """Times of a table `parallelism` are of one micro-batch, so more of them alone would be more work."""
    cut = {"pipeline": 4, "layers": 4, "micro_batches": 2, "activations": "36 KiB", "bucket": "64 kB"}
    shape = {"leaves": 1, "spines": 0, "hosts_per_leaf": 4, "rate": "100 Gb/s"}
    given = {"topology": {"leaf_spine": shape}, "size": "64 kB"}
    before, found = run(given | {"parallelism": cut | {"forward": "18 ms", "backward": "36 ms"}}, switch)
    named = next(finding for finding in found.findings if finding.cause == "pipeline bubble")
    advised = re.search(r"micro_batches = (\d+), with .* divided by ([0-9.]+),", named.change)
    assert advised is not None
    less = float(advised[2])
    smaller = {
        "forward": f"{18 / less} ms",
        "backward": f"{36 / less} ms",
        "activations": f"{36 / less:.0f} KiB",
    }
    after, then = run(given | {"parallelism": cut | smaller | {"micro_batches": int(advised[1])}}, switch)
    assert step_seconds(after) == pytest.approx(step_seconds(before) * (1 - named.share) / 0.9, rel=0.05)
    assert {finding.cause for finding in then.findings} <= {"pipeline bubble"}


def test_network_cards_that_a_tree_leaves_unused_are_to_be_used_first(switch: Engine) -> None:
    servers = SERVERS | {"leaves": 2, "spines": 1, "nics_per_server": 2, "nic_rate": "25 Gb/s"}
    given = {"topology": {"servers": servers}, "size": "4 MB", "algorithm": "in-network"}
    before, found = run(given, switch)
    named = next(finding for finding in found.findings if finding.cause == "oversubscription")
    assert named.change.startswith("set trees = 2: server1 has 2 network cards, and a tree uses one")
    after, then = run(given | {"trees": 2}, switch)
    assert step_seconds(after) < 0.7 * step_seconds(before)
    assert not [finding for finding in then.findings if "set trees" in finding.change]


@pytest.mark.parametrize("other", [{"window": 1024}, {"world": "live"}])
def test_trees_are_not_advised_where_a_scenario_with_them_is_refused(
    switch: Engine, other: dict[str, Any]
) -> None:
    """Each tree needs its own slots, and live networks have one."""
    servers = SERVERS | {"leaves": 2, "spines": 1, "nics_per_server": 2, "nic_rate": "25 Gb/s"}
    given = {"topology": {"servers": servers}, "size": "4 MB", "algorithm": "in-network"}
    measured = run_virtual(Settings.model_validate(given).settled, switch)
    settings = Settings.model_validate(given | other).settled
    found = diagnose(row(settings, replace(measured, window=settings.window or 512)), measured.usage)
    named = next(finding for finding in found.findings if finding.cause == "oversubscription")
    assert named.change.startswith("use faster network cards for server1 (nic_rate)")


def test_links_without_a_rate_are_no_reason_for_slowness(switch: Engine) -> None:
    shape = {"leaves": 1, "spines": 0, "hosts_per_leaf": 4}
    _, found = run({"topology": {"leaf_spine": shape}, "size": "40 kB", "algorithm": "ring"}, switch)
    assert found.cause == "unexplained"
    assert "no link has a rate" in found.findings[0].evidence
    assert "rate" in found.findings[0].change


def test_more_cards_are_advised_to_hosts_only_with_paths_that_use_them(switch: Engine) -> None:
    given = {"topology": {"servers": SERVERS | {"nic_rate": "25 Gb/s"}}, "size": "2 MB", "algorithm": "ring"}
    _, found = run(given | {"placement": "spread"}, switch)
    named = next(finding for finding in found.findings if finding.cause == "oversubscription")
    assert "more of them (nics_per_server) with paths = 'spray' or 'adaptive'" in named.change


def test_buckets_beside_slow_uplinks_save_what_is_promised(switch: Engine) -> None:
    """Two flows share an uplink; and the size that is advised is a multiple of 4 bytes, however long the vector is."""
    shape = {"spines": 1, "leaves": 3, "hosts_per_leaf": 2, "rate": "20 Gb/s", "uplink_rate": 13333333333}
    step = {"forward": "58 us", "backward": "116 us", "bucket": "24992 B"}
    given = {
        "topology": {"leaf_spine": shape},
        "size": "99968 B",
        "algorithm": "ring",
        "placement": "spread",
        "paths": "spray",
    }
    before, found = run(given | {"step": step}, switch)
    named = next(finding for finding in found.findings if finding.cause == "small buckets")
    advised = re.search(r"set step.bucket = '([^']+)'", named.change)
    assert advised is not None
    after, _ = run(given | {"step": step | {"bucket": advised[1]}}, switch)
    assert 1 - step_seconds(after) / step_seconds(before) == pytest.approx(named.share, abs=0.2)


@pytest.mark.long
def test_advice_on_settings_never_makes_a_step_longer_and_gains_about_what_it_promises(
    switch: Engine,
) -> None:
    """The steps are planted, with seeds that no other test uses."""
    gains = []
    for seed in range(9000, 9000 + sized(10, 400)):
        settings = plant_step(seed).settings
        before = run_virtual(settings, switch)
        # Where packets are lost, the time depends much on which ones.
        seeds = range(5) if before.retransmissions else [settings.seed]
        for finding in diagnose(row(settings, before), before.usage).findings:
            bucket = re.search(r"set step.bucket = '([^']+)'", finding.change)
            window = re.search(r"window of ([0-9,]+) packets", finding.change)
            if bucket:
                changed = {"step": settings.model_dump(mode="json")["step"] | {"bucket": bucket[1]}}
            elif window:
                changed = {"window": int(window[1].replace(",", ""))}
            else:
                continue
            times = [
                median(
                    step_seconds(run_virtual(with_changes(settings, given | {"seed": one}), switch))
                    for one in seeds
                )
                for given in ({}, changed)
            ]
            gain = 1 - times[1] / times[0]
            # Some timers are very long, so that a promise may be exceeded.
            share = max(finding.share, gain) if before.retransmissions else finding.share
            gains.append((seed, finding.cause, share, gain))
    assert len(gains) >= sized(1, 40)
    assert all(gain > -0.02 for *_, gain in gains), gains
    assert not [one for one in gains if abs(one[2] - one[3]) > 0.2], gains
