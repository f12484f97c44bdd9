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
    assert found.dollars_per_step == pytest.approx(256 * 30 * 16 / 3600)


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


def test_by_hand_a_model_that_is_cut() -> None:
    """16 copies in tensor groups of 8: 16 servers of a stage, each with a quarter of the parameters.

    A copy has 256 / (2 x 16) = 8 micro-batches, so three stages more wait for 3/8 of the computing time.
    """
    options: dict[str, Any] = {
        "parameters": "8B",
        "dtype": "bf16",
        "tensor": 8,
        "pipeline": 4,
        "data": 16,
        "global_batch": 256,
        "micro_batch": 2,
        "compute": "8 s",
        "latency": 0,
        "algorithm": "ring",
    }
    found = only(**options)
    assert (found.gpus, found.servers) == (512, 16)
    assert found.communication_seconds == pytest.approx(2 * 15 / 16 * 4e9 / 400e9)
    assert found.pipeline_seconds == pytest.approx(3)
    waiting = found.communication_seconds + 3
    assert found.idle_share == pytest.approx(waiting / (8 + waiting))
    assert only(**options | {"zero": 1}).communication_seconds == pytest.approx(found.communication_seconds)
    assert only(**options | {"zero": 1, "algorithm": "in-network"}).communication_seconds == pytest.approx(
        2 * 15 / 16 * 4e9 / 400e9
    )


@pytest.mark.parametrize(
    ("zero", "calls"), [(1, (1, 1)), (2, (4, 1)), (3, (4, 8))], ids=["zero-1", "zero-2", "zero-3"]
)
def test_zero_scatters_and_gathers_as_often_as_it_keeps_too_little(zero: int, calls: tuple[int, int]) -> None:
    options = {"parameters": "1B", "compute": "1 s", "gpus": "64", "global_batch": 256, "latency": 0}
    found = only(**options, zero=zero, algorithm="ring")
    assert found.communication_seconds == pytest.approx(sum(calls) * 7 / 8 * 4e9 / 400e9)
    assert found.bytes_each_way == pytest.approx(sum(calls) * 7 / 8 * 4e9)
    switches = only(**options, zero=zero, algorithm="in-network")
    scatters, gathers = calls
    up, down = 7 * scatters + gathers, scatters + 7 * gathers
    assert switches.bytes_each_way == pytest.approx(max(up, down) / 8 * 4e9)


def test_the_activations_of_a_published_model_are_sent() -> None:
    """A sequence of 8192 tokens with 4096 values of 2 bytes, over the 8 cards of a server: 0.168 ms each way."""
    found = only(
        model="llama-3-8b", tensor=8, pipeline=2, data=2, global_batch=2, compute="1 s", latency=0,
        algorithm="ring",
    )  # fmt: skip
    assert found.pipeline_seconds == pytest.approx(1 + 2 * 8192 * 4096 * 2 / 400e9)


def test_published_models_compute_what_their_layers_multiply() -> None:
    """6 operations for each parameter and token, and attention: within a tenth for a sequence of 2,048."""
    options: dict[str, Any] = {"gpus": "1024", "algorithm": "ring"}
    named = only(model="gpt-3-175b", global_batch=2048, **options)
    assert named.compute_seconds == only(model="gpt-3-175b", tokens=2048 * 2048, **options).compute_seconds
    counted = only(parameters=174_604_259_328, tokens=2048 * 2048, **options)
    assert named.compute_seconds == pytest.approx(counted.compute_seconds, rel=0.1)
    assert named.compute_seconds > counted.compute_seconds


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
        ({"parameters": "7b"}, "write a number and its unit, such as '7G'"),
        ({"model": "llama-3-8b"}, "model: give model, such as 'llama-3-8b', or parameters"),
        ({"parameters": None}, "model: give model, such as 'llama-3-8b', or parameters"),
        ({"parameters": None, "model": "llama"}, "did you mean 'llama-3-8b'"),
        ({"parameters": None, "model": "gpt-5"}, "here are resnet-50, bert-large, gpt-3-175b, llama-3-8b"),
        ({"pipeline": 2, "gpus": "64"}, "global_batch: missing"),
        ({"micro_batch": 2}, "micro_batch: is a part of global_batch, which is missing"),
        ({"tensor": 3}, "tensor: 3 does not divide a server of 8"),
        ({"tensor": 16}, "tensor: 16 does not divide a server of 8"),
        ({"data": 16, "gpus": "64"}, "gpus: follow from data"),
        ({"data": 3, "tensor": 4}, "3 copies, whose tensor groups of 4 do not fill servers of 8"),
        ({"data": 2, "tensor": 4}, "have all copies of a stage in one server"),
        ({"zero": 4}, "less than or equal to 3"),
        ({"zero": 1, "algorithm": "parameter-server"}, "zero: has no parameter-server"),
        ({"zero": 2, "pipeline": 2, "global_batch": 512}, "zero: stage 2 cannot be combined with pipeline"),
        ({"global_batch": 100, "gpus": "64"}, "must be a multiple of 64 copies times micro_batch = 1"),
        (
            {"parameters": None, "model": "resnet-50", "pipeline": 2, "global_batch": 512},
            "pipeline: resnet-50 has no equal blocks",
        ),
        ({"parameters": None, "model": "bert-large", "compute": None}, "or global_batch, such as 1024"),
        ({"parameters": "1.5"}, "must be a whole number"),
        ({"compute": "1e9999999 s"}, "is too large"),
        ({"tokens": "4M"}, "give compute, such as '2 s', or tokens"),
        ({"utilization": "50%"}, "utilization: has no effect with compute"),
        ({"gpus": "12"}, "gpus: 12 do not fill servers of 8"),
        ({"gpus": "8"}, "gpus: 8 are in one server"),
        ({"gpus": ""}, "write a number and its unit"),
        ({"overlap": "60"}, "must be at most 1; for 60 percent, write '60%' or 0.6"),
        ({"overlap": "101%"}, "less than or equal to 1"),
        ({"price": "nan"}, "finite"),
        ({"algorithm": "rung"}, "Input should be 'in-network', 'ring'"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Job.model_validate({"parameters": "1G", "compute": "1 s"} | wrong)
    assert words in str(refused.value).replace("`", "")
