"""The price of idle GPUs: numbers worked out by hand from what they mean, and what must hold of any."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fanin.experiments.models.cost import Cost, Job, costs, idle_price, idle_share
from fanin.workers.host_based.algorithms.registry import algorithm_names


def only(**options: Any) -> Cost:
    (found,) = costs(Job.model_validate(options))
    return found


def test_by_hand_in_network() -> None:
    """175 G gradients of 4 bytes are 700 GB: 14 s at 50 GB/s. GPUs that compute for 2 s of 16 idle for 7/8."""
    found = only(
        parameters="175G",
        compute="2 s",
        gpus="256",
        nics=1,
        rate="400 Gb/s",
        latency=0,
        algorithm="in-network",
    )
    assert found.bytes_each_way == 700e9
    assert found.communication_seconds == found.exposed_seconds == pytest.approx(14)
    assert found.idle_share == pytest.approx(14 / 16)
    assert found.dollars_per_hour == pytest.approx(256 * 30 * 14 / 16)
    assert found.dollars_per_day == pytest.approx(24 * 256 * 30 * 14 / 16)


def test_by_hand_ring() -> None:
    """256 GPUs in 32 servers with 8 NICs: 62/32 of 350 GB at 400 GB/s, and two latencies; half of 2 s is hidden."""
    found = only(
        parameters="175G",
        dtype="bf16",
        compute="2 s",
        gpus="256",
        nics=8,
        latency="1 ms",
        overlap="50%",
        algorithm="ring",
        price=2,
    )
    assert found.bytes_each_way == pytest.approx(62 / 32 * 350e9)
    assert found.communication_seconds == pytest.approx(62 / 32 * 350 / 400 + 0.002)
    assert found.exposed_seconds == pytest.approx(62 / 32 * 350 / 400 + 0.002 - 1)
    assert found.dollars_per_hour == pytest.approx(
        2 * 256 * found.exposed_seconds / (2 + found.exposed_seconds)
    )


def test_by_hand_compute() -> None:
    """6 x 1 G x 1 M = 6e15 operations, on 100 GPUs that come to half of 1e12 a second."""
    found = only(
        parameters="1G", tokens="1M", flops="1 TFLOP/s", utilization="50%", gpus="100", gpus_per_server=1,
        algorithm="ring",
    )  # fmt: skip
    assert found.compute_seconds == pytest.approx(6e15 / (100 * 0.5e12))
    assert found.servers == 100


def test_each_cluster_has_a_row_for_each_algorithm() -> None:
    rows = costs(Job.model_validate({"parameters": "1G", "compute": "1 s"}))
    assert [(row.gpus, row.algorithm) for row in rows] == [
        (gpus, algorithm) for gpus in (256, 1024, 4096) for algorithm in ("in-network", "ring")
    ]


def test_what_is_hidden_costs_nothing() -> None:
    found = only(parameters="1M", compute="1 s", overlap="100%", gpus="256", algorithm="ring")
    assert (found.exposed_seconds, found.idle_share, found.dollars_per_hour) == (0, 0, 0)


JOBS = st.fixed_dictionaries(
    {
        "parameters": st.integers(1, 10**12),
        "compute": st.floats(1e-3, 100.0),
        "servers": st.integers(2, 40),
        "nics": st.integers(1, 8),
        "rate": st.integers(10**9, 10**12),
        "latency": st.floats(0, 1e-3),
        "overlap": st.floats(0, 1),
        "algorithm": st.sampled_from(algorithm_names()),
    }
)


def made(job: dict[str, Any], **changes: Any) -> Cost:
    options = job | changes
    servers, algorithm = options.pop("servers"), options.pop("algorithm")
    return only(**options, gpus=(8 * servers,), algorithm=(algorithm,))


@given(JOBS)
def test_better_networks_never_cost_more(job: dict[str, Any]) -> None:
    cost = made(job)
    assert 0 <= cost.idle_share < 1
    assert 0 <= cost.exposed_seconds <= cost.communication_seconds
    for better in (
        {"nics": job["nics"] + 1},
        {"rate": 2 * job["rate"]},
        {"latency": job["latency"] / 2},
        {"overlap": (1 + job["overlap"]) / 2},
        {"dtype": "bf16"},
    ):
        assert made(job, **better).dollars_per_hour <= cost.dollars_per_hour * (1 + 1e-9), better


@given(JOBS)
def test_in_network_is_never_behind_where_only_latency_and_bytes_count(job: dict[str, Any]) -> None:
    others = made(job)
    assert made(job, algorithm="in-network").communication_seconds <= others.communication_seconds * (
        1 + 1e-9
    )


def test_the_price_is_of_the_time_in_which_gpus_idle() -> None:
    assert idle_share(compute=3.0, exposed=1.0) == 0.25
    assert idle_price(0.25, 1024) == 0.25 * 1024 * 30
    assert idle_price(0.25, 1024, price=4) == 1024


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"parameters": "7B"}, "write a number and its unit, such as '7G'"),
        ({"parameters": "1.5"}, "must be a whole number"),
        ({"compute": "1e9999999 s"}, "is too large"),
        ({"tokens": "4M"}, "give compute, such as '2 s', or tokens"),
        ({"utilization": "50%"}, "utilization: has no effect with compute"),
        ({"gpus": "12"}, "gpus: 12 do not fill servers of 8"),
        ({"gpus": "8"}, "gpus: 8 are in one server"),
        ({"gpus": ""}, "write a number and its unit"),
        ({"overlap": "2"}, "less than or equal to 1"),
        ({"price": "nan"}, "finite"),
        ({"algorithm": "rung"}, "Input should be 'in-network', 'ring'"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Job.model_validate({"parameters": "1G", "compute": "1 s"} | wrong)
    assert words in str(refused.value)
