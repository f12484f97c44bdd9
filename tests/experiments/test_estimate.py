"""The estimates for points before they run, compared with what they then take."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.estimate import (
    HOPS_PER_SECOND,
    effort,
    hops_per_second,
    packet_hops,
    point_seconds,
    wall_seconds,
    work,
)
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

RACKS = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "100 Gb/s"}
CUT = {
    "tensor": 2,
    "pipeline": 2,
    "layers": 4,
    "micro_batches": 8,
    "forward": "10 us",
    "backward": "20 us",
    "activations": "16 KiB",
}

JOBS = Path(__file__).parents[2] / "scenarios" / "protocols" / "arrivals.csv"
ARRIVALS_ON = {"spines": 0, "leaves": 1, "hosts_per_leaf": 16, "rate": "10 Gb/s"}
TRAFFIC = {"pattern": "poisson", "load": 0.3, "size": "20 kB", "duration": "100 us"}
STEP = {"forward": "50 us", "backward": "50 us"}
SERVING = {"duration": "5 ms", "load": 0.5, "service_time": "20 us", "answer": "16 kB"}


def point(shape: dict[str, Any] = RACKS, **rest: Any) -> Settings:
    return Settings.model_validate({"topology": {"leaf_spine": shape}, "size": "400 kB"} | rest).settled


@pytest.mark.few(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"workers": 4},
        {"trees": 4, "window": 64},
        {"algorithm": "ring"},
        {"algorithm": "ring", "placement": "spread"},
        {"algorithm": "ring", "compression": {"kind": "8-bit"}},
        *({"algorithm": "ring", "collective": one} for one in ("all-gather", "broadcast", "all-to-all")),
        {"algorithm": "in-network", "collective": "reduce-scatter"},
        {"algorithm": "parameter-server"},
        {"algorithm": "halving-doubling", "repetitions": 2},
        {"repetitions": 3},
        {"shape": RACKS | {"rate": "1 Gb/s"}, "algorithm": "ring"},
        {"algorithm": "ring", "transport": "tcp"},
        {"algorithm": "ring", "links": {"loss": 0.02}},
        {"workers": 4, "other_job": {"size": "200 kB", "repetitions": 2}},
        {"workers": 4, "traffic": TRAFFIC},
        {"workers": 4, "repetitions": 4, "step": STEP, "storage": {"batch": "100 kB"}},
        {"workers": 6, "size": None, "serving": SERVING},
        {"shape": ARRIVALS_ON, "workers": 16, "size": None, "arrivals": {"trace": JOBS}},
        {"workers": 6, "size": None, "serving": SERVING | {"connections": "new", "fan_out": 3}},
        {"algorithm": "ring", "parallelism": CUT},
        {"algorithm": "ring", "parallelism": CUT | {"tensor": 1, "pipeline": 8, "layers": 8}},
        {"window": 64, "parallelism": CUT},
        {"window": 64, "parallelism": CUT | {"chunks": 4, "layers": 8}},
        {"window": 64, "parallelism": CUT | {"tensor": 4, "pipeline": 2}},
        *(
            {"size": "1 kB", "repetitions": 9, "algorithm": one}
            for one in ("in-network", "ring", "parameter-server")
        ),
        {"algorithm": "ring", "step": STEP | {"bucket": "4 kB"}},
        {"algorithm": "ring", "transport": "go-back-n", "window": 64, "links": {"loss": 0.005}},
    ],
)
def test_packets_are_nearly_as_many_as_expected(switch: Engine, given: dict[str, Any]) -> None:
    settings = point(**given)
    assert packet_hops(settings) == pytest.approx(run_virtual(settings, switch).packet_hops, rel=0.35)


def test_this_machine_is_as_fast_as_it_has_proved_to_be() -> None:
    fast = point().model_dump_json()
    finished = [
        {"error": None, "packet_hops": 40_000, "run_seconds": 3.0, "settings": fast},
        {"error": None, "packet_hops": 20_000, "run_seconds": 2.0, "settings": fast},
        {"error": "StallError", "packet_hops": 1, "run_seconds": 9.0},
        {"error": None, "packet_hops": None, "run_seconds": 9.0},  # live
    ]
    calls = work(point(), 0)  # of the workers, which a hop is not
    assert hops_per_second(finished) == pytest.approx((60_000 + 2 * calls) / 3)
    tcp = point(algorithm="ring", transport="tcp")
    alone = [{"error": None, "packet_hops": 1000, "run_seconds": 2.0, "settings": tcp.model_dump_json()}]
    assert hops_per_second(alone) == pytest.approx(work(tcp, 1000))
    cut = point(algorithm="ring", parallelism=CUT)
    assert effort(tcp) == 7 > effort(cut) > effort(point()) == 1 > effort(point(algorithm="ring"))
    assert hops_per_second([]) == HOPS_PER_SECOND
    settings = point()
    slow_point, fast_point = (point_seconds(settings, speed) for speed in (1000.0, 2000.0))
    assert slow_point - fast_point == pytest.approx(work(settings, packet_hops(settings)) / 2000)


def test_workers_of_other_protocols_take_longer_for_a_packet_and_for_a_call() -> None:
    ours = point(workers=6)
    for name in ("switchml", "atp", "omnireduce", "trio", "majority", "thc"):
        other = point(workers=6, protocol=name)
        assert work(other, 0) > 2 * work(ours, 0)
        assert work(other, 1000) - work(other, 0) > 1.3 * (work(ours, 1000) - work(ours, 0))
    assert effort(point(protocol="thc")) > 5 * effort(point(protocol="majority"))


def test_a_training_computes_for_its_samples_and_the_size_of_its_model() -> None:
    def computing(**training: int) -> float:
        return work(point(size=None, training=training), 0)

    assert computing(hidden=2048) > 2 * computing(hidden=64)
    assert computing(epochs=24) == pytest.approx(2 * computing(epochs=12))


def test_a_live_point_takes_its_links_time_and_of_some_nothing_is_known() -> None:
    live = {"world": "live", "repetitions": 10}
    slow = RACKS | {"rate": "10 Mb/s"}
    ten, twenty = (point_seconds(point(slow, **live | {"repetitions": n}), 1.0) for n in (10, 20))
    assert twenty - ten == pytest.approx(10 * 8 * 400_000 / 10e6, rel=0.2)
    assert isnan(point_seconds(point(RACKS | {"rate": None}, **live), 1.0))
    assert isnan(point_seconds(point(size=None, training={}, **live), 1.0))


@pytest.mark.parametrize(("jobs", "seconds"), [(1, 9.0), (2, 6.0), (3, 6.0)])
def test_points_run_side_by_side_as_far_as_there_are_jobs(jobs: int, seconds: float) -> None:
    assert wall_seconds([6.0, 1.0, 2.0], jobs) == seconds
