"""The analytical model of circuits: how often they change, their price, and the time of an all-reduce over them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fanin.experiments.models.circuits import changes, circuit_rate, fat_tree_price
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import HostBasedAlgorithm


def settings(
    algorithm: HostBasedAlgorithm | str, change: str, size: str = "64 kB", **rest: object
) -> Settings:
    shape = {"spines": 0, "leaves": 1, "hosts_per_leaf": 8, "rate": "200 Gb/s"}
    said = {
        "topology": {"leaf_spine": shape, "reconfiguration": change},
        "algorithm": algorithm,
        "size": size,
    }
    more = {"window": 1024, "coalescing": "1 us", "repetitions": 3}
    return Settings.model_validate(said | more | rest).settled


@pytest.mark.slow
@pytest.mark.parametrize("change", ["0 us", "20 us", "1 ms"])
@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling"])
def test_an_all_reduce_takes_what_the_model_predicts(algorithm: str, change: str, switch: Engine) -> None:
    measured = run_virtual(settings(algorithm, change), switch)
    assert measured.violations == 0
    assert measured.retransmissions == 0
    assert measured.median == pytest.approx(measured.closed_form_seconds, rel=0.06)


@pytest.mark.slow
def test_algorithms_that_send_to_several_hosts_at_once_take_turns(switch: Engine) -> None:
    """Their order is not known beforehand, so nothing is predicted."""
    measured = run_virtual(settings("parameter-server", "5 us", "16 kB"), switch)
    assert measured.violations == 0
    assert measured.closed_form_seconds is None
    assert measured.median > 6 * 5e-6


@pytest.mark.parametrize("workers", [2, 4, 8, 16])
def test_halving_changes_between_all_its_steps_but_the_two_in_the_middle(workers: int) -> None:
    levels = workers.bit_length() - 1
    assert changes("halving-doubling", workers) == 2 * (levels - 1)
    assert changes("ring", workers) == 0


def test_the_same_money_buys_a_higher_rate_over_circuits_the_more_tiers_they_replace() -> None:
    rates = [circuit_rate(fat_tree_price(tiers, 1.0)) for tiers in (1, 2, 3)]
    assert rates == pytest.approx([0.4, 1.2, 2.0])


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"algorithm": "in-network"}, "algorithm: an optical switch adds up nothing"),
        ({"world": "live"}, "topology.reconfiguration: is virtual only"),
        (
            {"lateness": "1 us", "min_workers": 2},
            "min_workers: cannot be combined with topology.reconfiguration",
        ),
        (
            {"topology": {"leaf_spine": {}, "reconfiguration": "1 us"}},
            "topology.reconfiguration: an optical switch is the only one, and there are 4; leave it out",
        ),
    ],
)
def test_what_does_not_fit_is_refused(said: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**{"algorithm": "ring", "change": "1 us"} | said)
    assert problem in str(refused.value)
