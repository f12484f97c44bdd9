"""Published models have the parameters that were published, and buckets hold all of them."""

from __future__ import annotations

import pytest

from fanin.experiments.workloads.neural_networks import (
    NEURAL_NETWORKS,
    Layer,
    NeuralNetwork,
    gradient_buckets,
    neural_network_named,
)

# Exactly: torchvision's documentation, the parameters of BERT's checkpoint with both heads, GPT-3's table D.1, and the
# sizes of the published checkpoints of Llama 3 and Mixtral.
PARAMETERS = {
    "resnet-50": 25_557_032,
    "bert-large": 336_226_108,
    "gpt-3-175b": 174_604_259_328,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mixtral-8x7b": 46_702_792_704,
}


@pytest.mark.parametrize("name", NEURAL_NETWORKS)
def test_the_parameters_are_those_that_were_published(name: str) -> None:
    assert neural_network_named(name).parameters == PARAMETERS[name]


def test_names_may_be_written_as_people_write_them() -> None:
    assert neural_network_named("Llama-3 8B") is neural_network_named("llama-3-8b")
    assert neural_network_named("ResNet-50").name == "resnet-50"


def test_a_token_passes_through_two_experts_of_eight() -> None:
    """Jiang et al., "Mixtral of experts", 2024: 13 billion of 47 billion parameters."""
    assert neural_network_named("mixtral-8x7b").active == pytest.approx(13e9, rel=0.01)


def test_operations_are_those_that_were_published() -> None:
    """ResNet-50: 4.09 G multiplications with additions (torchvision). GPT-3: 3.14e23 for 300 G tokens."""
    assert neural_network_named("resnet-50").forward_flop / 2 == pytest.approx(4.09e9, rel=0.001)
    gpt = neural_network_named("gpt-3-175b")
    assert gpt.step_flop / gpt.tokens * 300e9 == pytest.approx(3.14e23, rel=0.05)


def test_tensors_fill_buckets_from_the_last_to_the_first() -> None:
    layers = (Layer("first", (5, 3), 1), Layer("second", (4, 2), 1), Layer("third", (7, 1), 2))
    network = NeuralNetwork("three layers", layers, 1, 1, 0, "a sample")
    found = [(bucket.parameters, bucket.ready) for bucket in gradient_buckets(network, first=1, limit=8)]
    assert found == [(1, 0.5), (7 + 2, 0.75), (4 + 3 + 5, 1.0)]


def test_buckets_are_those_that_pytorch_makes() -> None:
    """A trace of ResNet-50 on two GPUs, in the tests of HolisticTraceAnalysis (nccl_data.json.gz), has these sizes."""
    buckets = gradient_buckets(neural_network_named("resnet-50"), 2**18, 25 * 2**18)
    assert [4 * one.parameters for one in buckets] == [8196000, 31502336, 26255360, 26550272, 9724160]


@pytest.mark.parametrize("name", NEURAL_NETWORKS)
def test_buckets_have_all_gradients_in_the_order_in_which_they_are_ready(name: str) -> None:
    network, mebi = neural_network_named(name), 2**18
    buckets = list(gradient_buckets(network, mebi, 25 * mebi))
    assert sum(bucket.parameters for bucket in buckets) == network.parameters
    assert all(bucket.parameters >= 25 * mebi for bucket in buckets[1:-1])
    ready = [bucket.ready for bucket in buckets]
    assert ready == sorted(ready)
    assert ready[-1] == 1


def test_an_unknown_name_is_refused_with_all_that_there_are() -> None:
    with pytest.raises(
        ValueError, match=r"did you mean 'resnet-50'.*There are resnet-50, bert-large"
    ) as refused:
        neural_network_named("resnet50")
    assert all(name in str(refused.value) for name in NEURAL_NETWORKS)
