"""Collective operations other than all-reduce in virtual time: what each worker gets, and how long it takes."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError

from fanin.experiments.results.checking import float32_sum_bound, sums_within
from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers import collective_worker
from fanin.workers.collective import Operation

pytestmark = pytest.mark.slow

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 4, "rate": "100 Gb/s", "uplink_rate": "400 Gb/s"}
OTHERS = [operation for operation in get_args(Operation) if operation != "all-reduce"]


def point(**changes: Any) -> Settings:
    document = {"topology": {"leaf_spine": RACKS}, "size": "800 kB", "algorithm": "ring", "window": 256}
    return Settings.model_validate(document | changes).settled


def run(switch: Engine, **changes: Any) -> Row:
    settings = point(**changes)
    return row(settings, run_virtual(settings, switch))


@pytest.mark.few(2)
@pytest.mark.parametrize("collective", OTHERS)
def test_every_worker_gets_its_part_in_the_time_of_the_closed_form(switch: Engine, collective: str) -> None:
    found = run(switch, collective=collective, size="2 MB", repetitions=2)
    assert found["violations"] == 0
    assert found["median_seconds"] == pytest.approx(found["closed_form_seconds"], rel=0.1)


@pytest.mark.parametrize("collective", OTHERS)
def test_what_is_lost_is_sent_again(switch: Engine, collective: str) -> None:
    found = run(switch, collective=collective, links={"loss": 0.01})
    assert found["violations"] == 0
    assert found["retransmissions"] > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("collective", ["all-gather", "broadcast", "reduce-scatter"])
@pytest.mark.parametrize(
    "changes",
    [
        {"size": "2 MB", "repetitions": 2},
        {"size": "200 kB", "repetitions": 2},
        {"size": "200 kB", "values": 128, "links": {"loss": 0.01}},
        {"size": "4012 B", "workers": 7},  # parts of different lengths, and none a whole packet
        {"size": "12 B", "workers": 5},  # some workers have no part
    ],
)
def test_switches_gather_and_scatter(switch: Engine, collective: str, changes: dict[str, Any]) -> None:
    found = run(switch, collective=collective, algorithm="in-network", **changes)
    assert found["violations"] == 0
    if "links" not in changes:
        assert found["median_seconds"] == pytest.approx(found["closed_form_seconds"], rel=0.25)


@pytest.mark.few(2)
@pytest.mark.parametrize(("spines", "leaves"), [(0, 1), (1, 2)])
@pytest.mark.parametrize("collective", ["all-gather", "reduce-scatter"])
def test_all_links_of_workers_are_busy_at_once(
    switch: Engine, collective: str, spines: int, leaves: int
) -> None:
    """The bound is the time of what one worker sends or receives, which a ring does not reach either.

    Links between the switches of racks are no faster, and carry no more.
    """
    shape = {"spines": spines, "leaves": leaves, "hosts_per_leaf": 4 // leaves, "rate": "1 Gb/s"}
    network, ring = (
        run(switch, collective=collective, algorithm=algorithm, size="2 MiB", topology={"leaf_spine": shape})
        for algorithm in ("in-network", "ring")
    )
    assert network["median_seconds"] < ring["median_seconds"]
    assert network["median_seconds"] < 1.15 * (3 / 4 * 2**21 * 8 / 1e9)
    assert network["median_seconds"] == pytest.approx(network["closed_form_seconds"], rel=0.02)


def test_a_part_at_the_wrong_place_is_found(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = collective_worker._Exchange.placed
    monkeypatch.setattr(collective_worker._Exchange, "placed", lambda own: np.roll(right(own), 1))
    assert run(switch, collective="all-gather", algorithm="in-network")["violations"] > 0


def test_in_the_network_workers_receive_only_the_sum_that_they_need(switch: Engine) -> None:
    """A worker sends seven parts of eight, and receives one; round the ring it receives seven."""
    scattered, summed = (
        run(switch, collective=one, algorithm="in-network", size="2 MB")
        for one in ("reduce-scatter", "all-reduce")
    )
    assert scattered["wire_bytes_per_worker"] < 0.7 * summed["wire_bytes_per_worker"]


def test_an_all_gather_moves_half_of_what_an_all_reduce_does(switch: Engine) -> None:
    gather, reduce = (run(switch, collective=one) for one in ("all-gather", "all-reduce"))
    assert gather["wire_bytes_per_worker"] == pytest.approx(reduce["wire_bytes_per_worker"] / 2, rel=0.01)


@pytest.mark.parametrize("operation", get_args(Operation))
def test_one_wrong_element_of_one_worker_is_found_where_it_is_promised(operation: Operation) -> None:
    inputs = [np.arange(8, dtype=np.float32) + 100 * rank for rank in range(4)]
    promise = sums_within(float32_sum_bound).promise(inputs, operation)
    exact = promise.exact if promise.exact.ndim == 2 else [promise.exact] * 4
    right = [one.astype(np.float32) for one in exact]
    assert promise.hold(right).violations == 0
    for element in range(8):
        wrong = [one.copy() for one in right]
        wrong[1][element] += 1
        promised = operation != "reduce-scatter" or element in (2, 3)
        assert promise.hold(wrong).violations == promised


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"algorithm": "in-network"},
            "collective: 'all-to-all' goes from host to host; set algorithm = 'ring'",
        ),
        (
            {"collective": "all-gather", "algorithm": "halving-doubling"},
            "collective: 'all-gather' needs algorithm = 'ring' or 'in-network'",
        ),
        (
            {"collective": "all-gather", "algorithm": "in-network", "trees": 2},
            "trees: 'all-gather' has one tree; leave it out",
        ),
        (
            {"collective": "all-gather", "algorithm": "in-network", "protocol": "switchml"},
            "collective: only fanin's own protocol and worker do 'all-gather'; set algorithm = 'ring'",
        ),
        ({"size": "4 kB", "workers": 3}, "size: must be a multiple of 12 bytes, a part for each worker"),
        ({"world": "live"}, "collective: is virtual only; leave it out, or set world = 'virtual'"),
        ({"step": {"forward": 1, "backward": 1}}, "collective: 'all-to-all' cannot be combined with step"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        point(**{"collective": "all-to-all"} | changes)
    assert complaint in str(caught.value)
