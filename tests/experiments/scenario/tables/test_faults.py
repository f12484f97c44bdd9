"""The table `faults`: what it takes, and what it says of what it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.scenario.file import ScenarioError, load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.faults import Fault

AT = {"at": "1 ms"}
DOWN = AT | {"link": ["leaf1", "spine1"]}


def settings(*faults: dict[str, Any], **changes: Any) -> Settings:
    document = {"topology": {"leaf_spine": {"hosts_per_leaf": 2}}, "size": "4 kB", "faults": faults}
    return Settings.model_validate(document | changes)


@pytest.mark.parametrize(
    ("fault", "end", "delay"),
    [
        (DOWN, None, 0.25),
        (DOWN | {"duration": "2 ms"}, 3e-3, 0.25),
        (DOWN | {"detection": "50 us"}, None, 5e-5),
        (AT | {"switch": "leaf1"}, None, 0.25),
        (AT | {"worker": "h1"}, None, 0.25),
        (AT | {"worker": "h1", "duration": 10}, 10.001, 7),
        (AT | {"controller": True}, None, 0.25),
    ],
)
def test_a_fault_has_an_end_and_is_found(fault: dict[str, Any], end: float | None, delay: float) -> None:
    [found] = settings(fault).faults
    assert found == Fault.model_validate(fault)
    assert found.end == pytest.approx(end)
    assert found.delay == delay


@pytest.mark.parametrize(
    ("faults", "changes", "complaint"),
    [
        ([AT], {}, "link: give one of link, switch, worker, controller, not none"),
        (
            [DOWN | {"switch": "leaf1"}],
            {},
            "link: give one of link, switch, worker, controller, not link and switch",
        ),
        ([AT | {"switch": "leaf1", "duration": 1}], {}, "duration: a switch is back immediately"),
        ([AT | {"link": ["leaf1", "leaf2"]}], {}, r"faults\[0\].link: leaf1 and leaf2 have no link"),
        (
            [DOWN, AT | {"switch": "leaf3"}],
            {},
            r"faults\[1\].switch: no switch is called 'leaf3'; there are leaf1",
        ),
        (
            [AT | {"worker": "h4"}],
            {"workers": 2},
            r"faults\[0\].worker: 'h4' is not a worker's host; those are h1, h2",
        ),
        ([DOWN, DOWN | {"at": "2 ms"}], {}, "faults: the link leaf1 spine1 is down twice at the same time"),
        ([AT | {"controller": False}], {}, "Input should be True"),
        ([AT | {"controller": True, "detection": 1}], {}, "detection: the controller is back after duration"),
        (
            [AT | {"controller": True, "duration": 1}, {"at": 1, "controller": True}],
            {},
            "faults: the controller is gone twice at the same time",
        ),
        ([AT | {"worker": "h1"}, {"at": 2, "worker": "h1"}], {}, "faults: the worker on h1 ends 2 times"),
        ([DOWN], {"world": "live"}, "faults: is virtual only; leave it out, or set world = 'virtual'"),
        ([], {"world": "live", "min_workers": 2}, "min_workers: is virtual only"),
        ([DOWN], {"min_workers": 5}, "min_workers: is 5, more than the 4 workers"),
        (
            [DOWN],
            {"min_workers": 2, "algorithm": "ring", "collective": "broadcast"},
            "min_workers: works with plain all-reduces",
        ),
        (
            [AT | {"worker": "h2"}],
            {"hosts": ["h1", "h3"], "other_job": {"size": "4 kB"}},
            r"faults\[0\].worker: 'h2' is not a worker's host; those are h1, h3",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    faults: list[dict[str, Any]], changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValidationError, match=complaint):
        settings(*faults, **changes)


def test_a_link_may_go_down_again_once_it_is_up() -> None:
    assert len(settings(DOWN | {"duration": "1 ms"}, DOWN | {"at": "3 ms"}).faults) == 2


def test_a_file_has_a_table_for_each(tmp_path: Path) -> None:
    file = tmp_path / "try.toml"
    text = """
name = "try"
size = "4 kB"
seed = [1, 2]
[topology.leaf_spine]
[[faults]]
at = "1 ms"
link = ["leaf1", "spine1"]
[[faults]]
at = "2 ms"
swich = "leaf1"
"""
    file.write_text(text)
    with pytest.raises(ScenarioError, match=r"faults.1.swich: unknown key; did you mean 'switch'\?"):
        load_scenario(file)
    file.write_text(text.replace("swich", "switch"))
    points = load_scenario(file, ["min_workers=2"]).points
    assert [(point.seed, len(point.faults), point.min_workers) for point in points] == [(1, 2, 2), (2, 2, 2)]
    assert Settings.model_validate_json(points[0].model_dump_json()) == points[0]
