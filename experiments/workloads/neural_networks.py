"""Published models by name: their layers, computed from the published configurations.

A layer lists its tensors in the order in which a framework registers them, and the multiplications of a sample that it
takes part in. Sources are in docs/reference/models.md, next to the published numbers of parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

from fanin.experiments.names import instead

Dtype = Literal["fp32", "bf16", "fp16", "fp8"]
DTYPE_BYTES: Mapping[Dtype, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of a model.

    Attributes:
        name: Name of the layer.
        tensors: Number of parameters of each tensor, in the order of registration.
        multiply_adds: Multiplications, each with an addition, of a sample's forward pass.
    """

    name: str
    tensors: tuple[int, ...]
    multiply_adds: int

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(self.tensors)


@dataclass(frozen=True, slots=True)
class NeuralNetwork:
    """A published model.

    Attributes:
        name: Its name here.
        layers: Its layers in the order of the forward pass.
        blocks: Number of equal blocks of layers, among which a pipeline is cut.
        tokens: Tokens of a sample; 1 for an image.
        width: Values of a token between two blocks; 0 where blocks differ.
        sample: What a sample is.
        active: Parameters that a token passes through; None: all.
        kept: Values that attention keeps for each token and block, its keys and values, while text is generated; 0 if
            the model generates none.
    """

    name: str
    layers: tuple[Layer, ...]
    blocks: int
    tokens: int
    width: int
    sample: str
    active: int | None = None
    kept: int = 0

    @property
    def parameters(self) -> int:
        """Return the number of parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def multiplied(self) -> int:
        """Return the number of parameters in layers that multiply; those of words are looked up."""
        return sum(layer.parameters for layer in self.layers if layer.multiply_adds)

    @property
    def forward_flop(self) -> int:
        """Return the floating-point operations of a sample's forward pass."""
        return 2 * sum(layer.multiply_adds for layer in self.layers)

    @property
    def step_flop(self) -> int:
        """Return the floating-point operations of a sample's forward and backward pass, which takes twice as many."""
        return 3 * self.forward_flop


def _linear(rows: int, columns: int, bias: bool = True) -> tuple[int, ...]:
    return (rows * columns, columns) if bias else (rows * columns,)


# -- ResNet-50 -----------------------------------------------------------------------------------------------------


def _resnet_50() -> NeuralNetwork:
    """Return ResNet-50 for images of 224 x 224, with the stride in the 3 x 3 convolution, as torchvision has it."""
    layers = [_convolution("conv1", 3, 64, 7, 112)]
    channels, size = 64, 56
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(blocks):
            before = size
            if stage > 1 and block == 0:
                size //= 2
            name = f"layer{stage}.{block}"
            layers += [
                _convolution(f"{name}.conv1", channels, width, 1, before),
                _convolution(f"{name}.conv2", width, width, 3, size),
                _convolution(f"{name}.conv3", width, 4 * width, 1, size),
            ]
            if block == 0:
                layers.append(_convolution(f"{name}.downsample", channels, 4 * width, 1, size))
            channels = 4 * width
    layers.append(Layer("fc", _linear(channels, 1000), channels * 1000))
    return NeuralNetwork("resnet-50", tuple(layers), 16, 1, 0, "an image of 224 x 224 pixels")


def _convolution(name: str, inputs: int, outputs: int, kernel: int, size: int) -> Layer:
    """Return a convolution with its batch normalization, which gives `size` x `size` values for each output."""
    weights = prod((inputs, outputs, kernel, kernel))
    return Layer(name, (weights, outputs, outputs), weights * size**2)


# -- transformers ----------------------------------------------------------------------------------------------------


def _attention(tokens: int, width: int) -> int:
    """Return the multiplications of a sequence's attention: of queries with keys, and of weights with values."""
    return 2 * tokens**2 * width


def _bert_large() -> NeuralNetwork:
    """Return BERT-large, uncased, with both heads of the pre-training."""
    width, hidden, words, positions, tokens = 1024, 4096, 30522, 512, 512
    norm = (width, width)
    layers = [Layer("embeddings", (words * width, positions * width, 2 * width, *norm), 0)]
    for block in range(24):
        square, attention = _linear(width, width), _attention(tokens, width)
        layers += [
            Layer(
                f"encoder.{block}.attention",
                (*4 * square, *norm),
                4 * tokens * width**2 + attention,
            ),
            Layer(
                f"encoder.{block}.feed_forward",
                (*_linear(width, hidden), *_linear(hidden, width), *norm),
                2 * tokens * width * hidden,
            ),
        ]
    # The matrix of the last layer is that of the words.
    heads = (*_linear(width, width), words, *_linear(width, width), *norm, *_linear(width, 2))
    layers.append(Layer("heads", heads, tokens * width * (width + words) + width * (width + 2)))
    return NeuralNetwork("bert-large", tuple(layers), 24, tokens, width, f"a sequence of {tokens} tokens")


def _gpt_3() -> NeuralNetwork:
    """Return GPT-3 with 175 billion parameters. The matrix of its last layer is that of the words."""
    width, words, tokens = 12288, 50257, 2048
    norm, hidden = (width, width), 4 * width
    layers = [Layer("embeddings", (words * width, tokens * width), 0)]
    for block in range(96):
        attention = tokens * 4 * width**2 + _attention(tokens, width)
        layers += [
            Layer(
                f"{block}.attention", (*norm, *_linear(width, 3 * width), *_linear(width, width)), attention
            ),
            Layer(
                f"{block}.feed_forward",
                (*norm, *_linear(width, hidden), *_linear(hidden, width)),
                tokens * 2 * width * hidden,
            ),
        ]
    layers.append(Layer("head", norm, tokens * width * words))
    return NeuralNetwork(
        "gpt-3-175b", tuple(layers), 96, tokens, width, f"a sequence of {tokens:,} tokens", kept=2 * width
    )


def _llama(
    name: str,
    blocks: int,
    width: int,
    hidden: int,
    words: int,
    tokens: int,
    experts: int = 1,
) -> NeuralNetwork:
    """Return a model with the blocks of Llama: grouped queries with 8 heads of 128 for keys and values, and SwiGLU.

    Args:
        name: Its name here.
        blocks: Number of blocks.
        width: Values of a token between blocks.
        hidden: Values of a token within a feed-forward network.
        words: Words of the vocabulary.
        tokens: Tokens of a sequence.
        experts: Feed-forward networks of a block. A router sends each token to two of several.
    """
    used, keys = min(experts, 2), 8 * 128
    router = width * experts if experts > 1 else 0
    layers = [Layer("embed_tokens", (words * width,), 0)]
    matrices = (width * width, width * keys, width * keys, width * width)
    expert = 3 * (width * hidden,)
    for block in range(blocks):
        layers += [
            Layer(
                f"{block}.self_attn", (*matrices, width), tokens * sum(matrices) + _attention(tokens, width)
            ),
            Layer(
                f"{block}.mlp",
                (*((router,) if router else ()), *experts * expert, width),
                tokens * (router + used * sum(expert)),
            ),
        ]
    layers += [Layer("norm", (width,), 0), Layer("lm_head", (width * words,), tokens * width * words)]
    idle = blocks * (experts - used) * sum(expert)
    parameters = sum(layer.parameters for layer in layers)
    return NeuralNetwork(
        name,
        tuple(layers),
        blocks,
        tokens,
        width,
        f"a sequence of {tokens:,} tokens",
        active=parameters - idle if idle else None,
        kept=2 * keys,
    )


NEURAL_NETWORKS: Mapping[str, NeuralNetwork] = {
    one.name: one
    for one in (
        _resnet_50(),
        _bert_large(),
        _gpt_3(),
        _llama("llama-3-8b", blocks=32, width=4096, hidden=14336, words=128256, tokens=8192),
        _llama("llama-3-70b", blocks=80, width=8192, hidden=28672, words=128256, tokens=8192),
        _llama("mixtral-8x7b", blocks=32, width=4096, hidden=14336, words=32000, tokens=4096, experts=8),
    )
}


def neural_network_named(name: str) -> NeuralNetwork:
    """Return the model with this name, as people write it: "Llama-3 8B" is llama-3-8b.

    Raises:
        ValueError: If there is none.
    """
    key = name.lower().replace(" ", "-")
    if key not in NEURAL_NETWORKS:
        raise ValueError(f"no model has this name{instead(name, [*NEURAL_NETWORKS], 'models', '')}")
    return NEURAL_NETWORKS[key]


# -- buckets of gradients --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GradientBucket:
    """Gradients that are summed together.

    Attributes:
        parameters: How many they are.
        ready: Share of the backward pass after which all of them are there.
    """

    parameters: int
    ready: float


def gradient_buckets(network: NeuralNetwork, first: int, limit: int) -> Iterator[GradientBucket]:
    """Yield the buckets into which DistributedDataParallel puts gradients, in the order in which they become ready.

    Tensors fill a bucket in the reverse of their order, and a bucket is full once it has reached its limit. Each layer
    takes a share of the backward pass that follows from its multiplications.

    Args:
        network: The model.
        first: Parameters at which the first bucket is full. DDP starts with a small one.
        limit: Parameters at which every other bucket is full.
    """
    total = sum(layer.multiply_adds for layer in network.layers)
    done, size = 0, 0
    for layer in reversed(network.layers):
        done += layer.multiply_adds
        for tensor in reversed(layer.tensors):
            size += tensor
            if size >= first:
                yield GradientBucket(size, done / total)
                size, first = 0, limit
    if size:
        yield GradientBucket(size, 1.0)
