"""An algorithm from outside runs in virtual time, is predicted, diagnosed and priced; one that nobody knows is not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.diagnosis.diagnose import DiagnosisError, diagnose
from fanin.experiments.models.closed_forms import bytes_each_way, formula
from fanin.experiments.models.cost import Job, costs
from fanin.experiments.results.measured import row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from tests.workers.host_based.chain import registered

KNOWN = "'in-network', 'ring', 'halving-doubling', 'double-binary-tree'"


@pytest.fixture
def chain() -> Iterator[str]:
    with registered() as name:
        yield name


def settings(algorithm: str, **changes: Any) -> Settings:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 2, "rate": "10 Gb/s"}
    return Settings.model_validate(
        {"topology": {"leaf_spine": shape}, "algorithm": algorithm, "size": "1 MB"} | changes
    ).settled


@pytest.mark.slow
def test_virtual_time_gives_its_sums_and_takes_the_time_of_its_model(switch: Engine, chain: str) -> None:
    measured = run_virtual(settings(chain), switch)
    assert measured.violations == 0
    assert measured.closed_form_seconds == pytest.approx(measured.median, rel=0.1)


@pytest.mark.few(0)
@pytest.mark.slow
def test_loss_delays_its_sums_but_does_not_change_them(switch: Engine, chain: str) -> None:
    lossless = run_virtual(settings(chain), switch)
    lossy = run_virtual(settings(chain, links={"loss": 0.01}, transport="go-back-n"), switch)
    assert lossy.violations == 0
    assert lossy.median > lossless.median


@pytest.mark.slow
@pytest.mark.parametrize(("window", "cause"), [(4, "window"), (256, "nothing wrong")])
def test_its_window_is_diagnosed(switch: Engine, chain: str, window: int, cause: str) -> None:
    point = settings(chain, window=window)
    measured = run_virtual(point, switch)
    assert diagnose(row(point, measured), measured.usage).cause == cause


def test_its_bytes_follow_from_its_schedule(chain: str) -> None:
    assert bytes_each_way(chain, 2, 1000) == 1000
    assert bytes_each_way(chain, 5, 1000) == 2000
    assert formula(chain, 5) == "2·(n-1)·L + 2·S/B"


def test_its_cost_is_that_of_its_model(chain: str) -> None:
    given = {"parameters": "1G", "compute": "1 s", "gpus": [64], "rate": "100 Gb/s", "latency": "10 us"}
    (found,) = costs(Job.model_validate({**given, "algorithm": chain}))
    assert found.communication_seconds == pytest.approx(2 * 7 * 10e-6 + 2 * 4e9 / (8 * 100e9 / 8))


def test_its_name_is_known_as_long_as_it_is_registered() -> None:
    with registered() as name:
        settings(name)
    with pytest.raises(ValidationError, match=KNOWN):
        settings(name)


def test_cost_and_diagnosis_refuse_an_algorithm_that_nobody_knows(switch: Engine) -> None:
    with pytest.raises(ValidationError, match=KNOWN):
        Job.model_validate({"parameters": "1G", "compute": "1 s", "algorithm": "rign"})
    for what in (bytes_each_way, lambda name, *_: formula(name, 4)):
        with pytest.raises(ValueError, match="choose one of ring, halving-doubling"):
            what("rign", 4, 1000)
    measured = run_virtual(settings("ring"), switch)
    strange = row(settings("ring"), measured)
    strange["settings"] = json.dumps(json.loads(strange["settings"]) | {"algorithm": "rign"})
    with pytest.raises(DiagnosisError, match=KNOWN):
        diagnose(strange, measured.usage)
