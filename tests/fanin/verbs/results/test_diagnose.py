"""`fanin diagnose`: what it prints of one point and of several, and what it says of wrong inputs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.results.files import write_results
from fanin.experiments.results.measured import Row, row
from fanin.experiments.results.usage import Usage
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.simulator.fabric import load_switch
from fanin.topologies.shapes import leaf_spine
from tests.experiments.results.runs import USAGE, made

ON_TIME = replace(USAGE, workers=tuple(replace(one, began=(0.0, 2.0)) for one in USAGE.workers))


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["diagnose", *map(str, arguments)])
    return done.exit_code, done.output


def ran(**settings: object) -> Row:
    shape = {"spines": 2, "leaves": 2, "hosts_per_leaf": 2, "rate": "10 Gb/s"}
    said = {"topology": {"leaf_spine": shape}, "size": "100 kB"} | settings
    point = Settings.model_validate(said).settled
    return row(point, run_virtual(point, load_switch()))


@pytest.fixture(scope="module")
def clean() -> Row:
    return ran()


@pytest.fixture(scope="module")
def small_window() -> Row:
    return ran(window=4, links={"delay": "2 us"})


def test_one_point_has_evidence_and_what_to_change(small_window: Row, tmp_path: Path) -> None:
    write_results([small_window], {}, tmp_path)
    status, output = invoke(tmp_path)
    assert status == 0
    assert output.startswith("1. window, about ")
    assert "a window of 4 packets takes 3.5 us to send" in output
    assert "What to change: use a window of " in output


def test_nothing_wrong_has_what_set_the_time(clean: Row, tmp_path: Path) -> None:
    write_results([clean], {}, tmp_path)
    status, output = invoke(tmp_path)
    assert status == 0
    assert output.startswith("Nothing wrong: the busiest link, h")


def test_several_points_have_a_table_of_causes_and_the_evidence_of_each_cause_once(
    clean: Row, small_window: Row, tmp_path: Path
) -> None:
    write_results([clean, small_window], {}, tmp_path)
    heading, _, first, second, empty, evidence, change = invoke(tmp_path)[1].splitlines()
    assert heading.split()[-1] == "causes"
    assert first.endswith("nothing wrong")
    assert re.search(r"4 .* window \d\d%$", second.rstrip())
    assert not empty
    assert re.match(
        r"window, most with .*window=4.*: about \d\d% of the time: a window of 4 packets", evidence
    )
    assert change.startswith("   What to change: use a window of ")
    told = [json.loads(line) for line in invoke(tmp_path, "--json")[1].splitlines()]
    assert [one["cause"] for one in told] == ["nothing wrong", "window"]
    assert [one["point"] for one in told] == [clean["key"], small_window["key"]]
    assert told[1]["findings"][0]["share"] > 0.5


def test_a_cause_that_costs_little_is_in_the_table_of_several_points(clean: Row, tmp_path: Path) -> None:
    lossy = ran(size="1 MB", links={"loss": 1e-3})
    write_results([clean, lossy], {}, tmp_path)
    assert re.search(r"nothing wrong; little: loss \d+%$", invoke(tmp_path)[1].rstrip(), re.M)


def test_causes_of_the_same_cost_are_both_in_the_table(clean: Row, tmp_path: Path) -> None:
    shape = {"spines": 2, "leaves": 4, "hosts_per_leaf": 4, "rate": "100 Gb/s", "oversubscription": 2}
    settings = {
        "topology": {"leaf_spine": shape},
        "workers": 8,
        "placement": "spread",
        "algorithm": "ring",
        "size": "1 MB",
    }
    write_results([clean, ran(**settings)], {}, tmp_path)
    table = invoke(tmp_path)[1].partition("\n\n")[0]
    assert re.findall(r"oversubscription (\d+%), collision \1", table)


def test_processors_are_named_where_they_set_a_live_run(tmp_path: Path) -> None:
    busy = {"limited_by": "processors", "processor_utilization": 0.95, "link_utilization": 0.2}
    live = made([1.0, 1.5], world="live") | busy | {"usage": USAGE.as_columns()}
    write_results([live], {}, tmp_path)
    status, output = invoke(tmp_path)
    assert status == 0
    assert output.startswith(
        "1. this machine, about 95% of the time: processors were busy for 95% of the time, the busiest link for 20%."
    )


@pytest.mark.parametrize(
    ("losing", "where", "change"),
    [
        (range(8), r"on 6 of 6 links, none of which lost most \(", r"fix what these \d links have"),
        ([0], "all on the link h1 - leaf1;", "fix the link h1 - leaf1"),
    ],
)
def test_one_link_is_blamed_for_losses_only_if_it_had_most(
    losing: Sequence[int], where: str, change: str, tmp_path: Path
) -> None:
    topology = leaf_spine(2, 2, 2, 10**10).model_dump(mode="json")
    for number in losing:
        topology["links"][number]["properties"]["loss"] = 0.05
    write_results([ran(topology=topology, size="400 kB", seed=1)], {}, tmp_path)
    output = invoke(tmp_path)[1]
    assert re.search(rf"1\. loss, .* were lost, {where}", output)
    assert re.search(rf"What to change: {change}", output)


def test_a_barrier_that_ends_late_at_a_worker_is_no_straggler(clean: Row, tmp_path: Path) -> None:
    usage = Usage.from_columns(clean["usage"])
    *others, last = usage.workers
    assert all(own == 0 for worker in usage.workers for own in worker.own_seconds or (1,))
    late = replace(
        last, began=tuple(one + 0.01 for one in last.began), ended=tuple(one + 0.01 for one in last.ended)
    )
    for own, causes in ((last.own_seconds, set()), (None, {"straggler"})):
        workers = tuple(replace(worker, own_seconds=own) for worker in (*others, late))
        changed = clean | {"usage": Usage(usage.links, workers).as_columns()}
        write_results([changed], {}, tmp_path)
        found = json.loads(invoke(tmp_path, "--json")[1])["findings"]
        assert {one["cause"] for one in found} & {"straggler"} == causes


STEP = {"forward": "100 us", "backward": "200 us"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cause", "change", "settings"),
    [
        ("no overlap", "set step.bucket = ", {"step": STEP, "size": "400 kB"}),
        ("small buckets", "set step.bucket = ", {"step": STEP | {"bucket": "512 B"}}),
        ("data loader", "num_workers", {"step": STEP | {"bucket": "25 kB", "loading": "300 us"}}),
        (
            "oversubscription",
            "use more or faster uplinks",
            {
                "topology": {
                    "fat_tree": {
                        "pods": 2,
                        "rate": "100 Gb/s",
                        "uplink_rate": "8 Gb/s",
                        "core_rate": "8 Gb/s",
                    }
                },
            },
        ),
        ("latency", "sum several vectors in one call", {"size": "256 B", "links": {"delay": "20 us"}}),
        (
            "communication",
            "let workers compute more for each sum",
            {"step": {"forward": "1 us", "backward": "1 us"}},
        ),
        (
            "pipeline bubble",
            "parallelism.micro_batches = ",
            {
                "parallelism": {
                    "pipeline": 4,
                    "layers": 4,
                    "forward": "4 ms",
                    "backward": "8 ms",
                    "activations": "4 KiB",
                }
            },
        ),
    ],
)
def test_idle_workers_have_a_cause_and_a_setting(
    cause: str, change: str, settings: dict[str, object], tmp_path: Path
) -> None:
    write_results([ran(**settings)], {}, tmp_path)
    status, output = invoke(tmp_path)
    assert status == 0
    assert output.startswith(f"1. {cause}, about "), output
    assert change in output


def test_losses_that_cost_little_are_mentioned_with_their_cost(tmp_path: Path) -> None:
    step = {"forward": "1 ms", "backward": "2 ms", "bucket": "25 kB"}
    write_results([ran(links={"loss": 0.001}, step=step, size="400 kB")], {}, tmp_path)
    output = invoke(tmp_path)[1]
    assert output.startswith("Nothing wrong: workers computed for 9")
    assert "Too little to change anything: loss, at most " in output
    [told] = [json.loads(line) for line in invoke(tmp_path, "--json")[1].splitlines()]
    assert [one["cause"] for one in told["minor"]] == ["loss"]


def test_a_live_run_names_the_causes_that_it_cannot_show(tmp_path: Path) -> None:
    live = made([1.0, 1.5], world="live") | {"limited_by": "neither", "usage": ON_TIME.as_columns()}
    write_results([live], {}, tmp_path)
    output = invoke(tmp_path)[1]
    assert output.startswith("1. unexplained, about ")
    assert "a live run cannot show whether it was a slow link, a pause storm, a priority inversion" in output
    assert "Cannot tell live, which virtual time can: slow link, pause storm, priority inversion." in output
    assert "Nothing wrong" not in output


def test_a_live_run_is_not_called_right_if_an_unseen_cause_may_have_cost_much(tmp_path: Path) -> None:
    live = made([1.0, 1.5], world="live") | {"limited_by": "neither", "usage": ON_TIME.as_columns()}
    for explained, cause in ((0.7, "cannot tell live"), (0.9, "nothing wrong")):
        predicted = explained * ON_TIME.seconds / 2
        write_results([live | {"closed_form_seconds": predicted}], {}, tmp_path)
        output = invoke(tmp_path)[1]
        assert output.startswith("No cause found: " if explained < 0.8 else "Nothing wrong: ")
        assert "Cannot tell live, which virtual time can: slow link" in output
        assert json.loads(invoke(tmp_path, "--json")[1])["cause"] == cause
        write_results([live | {"closed_form_seconds": predicted}, live | {"key": "b"}], {}, tmp_path)
        several = invoke(tmp_path)[1]
        assert cause in several
        assert "Cannot tell live, which virtual time can: slow link" in several


def test_sums_that_wait_longer_than_workers_compute_are_not_called_right(clean: Row, tmp_path: Path) -> None:
    write_results([clean], {"compute_seconds": 50e-6}, tmp_path)
    output = invoke(tmp_path)[1]
    assert output.startswith("1. communication, about ")
    assert "workers compute for 50 us between two of them (compute), so they idle for " in output
    assert "What to change: let workers compute more for each sum" in output


def test_a_deadlock_is_a_cause_with_the_links_that_waited(tmp_path: Path) -> None:
    circle = "deadlock of priority flow control: each waits for the next: leaf1 → spine1, spine1 → leaf1"
    write_results([made([1.0]) | {"error": f"DeadlockError: {circle}"}], {}, tmp_path)
    status, output = invoke(tmp_path)
    assert status == 0
    assert output.startswith(f"1. deadlock, about 100% of the time: {circle}.")
    assert "What to change: use routes without a circle" in output


def used(**links: float) -> Row:
    """A row of a run whose first link was used like this."""
    first, *others = USAGE.links
    usage = Usage((replace(first, **links), *others), USAGE.workers)
    return made([1.0, 1.5]) | {"usage": usage.as_columns()}


def test_a_priority_that_was_overtaken_is_named_with_the_link(tmp_path: Path) -> None:
    write_results([used(overtaken_seconds=1.5)], {}, tmp_path)
    assert invoke(tmp_path)[1].startswith(
        "1. priority inversion, about 60% of the time: h1 → leaf1 sent packets of a higher priority for 60% of the "
        "time while packets of the job (priority 0) waited."
    )


def test_what_a_watchdog_dropped_is_evidence_of_a_pause_storm(tmp_path: Path) -> None:
    write_results([used(paused_seconds=0.2, pauses=7, storms=3, watchdog_drops=40)], {}, tmp_path)
    output = invoke(tmp_path)[1]
    assert output.startswith("1. pause storm, about ")
    assert "h1 → leaf1 was paused for 8% of the time (7 of 7 pauses in total)" in output
    assert "a watchdog found 3 storms and dropped 40 packets" in output
    assert "a watchdog that waits longer (detection_time)" in output


def test_a_link_that_only_dropped_is_none_that_was_busy(tmp_path: Path) -> None:
    nothing = {"packets": 0, "bytes": 0, "wire_bytes": 0, "busy_seconds": 0.0, "queue_drops": 3}
    write_results([used(**nothing)], {}, tmp_path)
    assert invoke(tmp_path)[0] == 0


def test_results_that_do_not_suffice_are_named(tmp_path: Path) -> None:
    assert invoke(tmp_path / "none")[0] == 2
    write_results([made([1.0])], {}, tmp_path / "bare")
    status, output = invoke(tmp_path / "bare")
    assert status == 1
    assert (
        "have no counts of links and workers (links.parquet, workers.parquet); run the scenario again"
        in output
    )
    assert "no point can be diagnosed" in output
    write_results([made([1.0]) | {"error": "RunError: h1 is gone"}], {}, tmp_path / "failed")
    status, output = invoke(tmp_path / "failed")
    assert (status, "the run failed: RunError: h1 is gone" in output) == (1, True)


def test_jobs_of_a_trace_are_not_diagnosed(tmp_path: Path) -> None:
    text = "arrival,workers,size,rounds\n0,2,4000,1\n"
    (tmp_path / "jobs.csv").write_text(text)
    shape = {"leaves": 1, "spines": 0, "hosts_per_leaf": 2, "rate": "1 Gb/s"}
    settings = Settings.model_validate(
        {"topology": {"leaf_spine": shape}, "arrivals": {"trace": tmp_path / "jobs.csv"}}
    )
    made_of = row(settings, run_virtual(settings, load_switch()))
    write_results([made_of], {}, tmp_path / "jobs")
    status, output = invoke(tmp_path / "jobs")
    assert status == 1
    assert "has a table arrivals, and only runs of a single job are diagnosed" in output
