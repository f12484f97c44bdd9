"""The table `decoding` of a scenario: a model that generates text, with each layer shared by all workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.workloads.neural_networks import (
    DTYPE_BYTES,
    NEURAL_NETWORKS,
    Dtype,
    NeuralNetwork,
    neural_network_named,
)
from fanin.topologies.units import Count, Flops, MemoryRate, Seconds

_SUMS_OF_A_BLOCK = 2  # after attention and after the feed-forward network (Megatron-LM, section 3)
FIRST_SUMS = (
    1  # that a run simulates and leaves out: only the first of all does not know what exponents to expect
)
_VALUE_BYTES = 2  # activations, keys and values, whatever the type of the weights


class Decoding(Table):
    """Tokens that a model generates one after another, where all workers share each layer (tensor parallelism).

    For each token, a worker reads its part of all weights, and of the keys and values of all earlier tokens. Two
    all-reduces in each block of layers add up what the workers have computed.
    """

    model: Annotated[
        str,
        AfterValidator(lambda name: neural_network_named(name).name),
        Field(description="name of a published model", json_schema_extra={"enum": [*NEURAL_NETWORKS]}),
    ]
    sequences: Annotated[int, Field(ge=1, description="sequences that get a token at the same time")] = 1
    context: Annotated[Count, Field(description="earlier tokens of each sequence")] = 0
    dtype: Annotated[Dtype, Field(description="type of the weights")] = "bf16"
    layers: Annotated[
        int | None,
        Field(ge=1, description="blocks of layers that a run simulates; times are those of all blocks"),
    ] = None
    memory_rate: Annotated[
        MemoryRate, Field(gt=0, description="bytes per second that a worker reads from its memory")
    ] = 3_350 * 10**9
    flops: Annotated[
        Flops,
        Field(gt=0, le=10**20, description="floating-point operations per second that a worker reaches"),
    ] = 989 * 10**12
    launch: Annotated[
        Seconds, Field(description="time before each all-reduce in which a worker neither computes nor sends")
    ] = 0.0

    @property
    def network(self) -> NeuralNetwork:
        """Return the published model."""
        return neural_network_named(self.model)

    @property
    def vector_bytes(self) -> int:
        """Return the bytes of an all-reduce."""
        return self.sequences * self.network.width * _VALUE_BYTES

    @property
    def simulated_sums(self) -> int:
        """Return the number of all-reduces in a run."""
        return FIRST_SUMS + _SUMS_OF_A_BLOCK * min(self.layers or self.network.blocks, self.network.blocks)

    @property
    def sums(self) -> int:
        """Return the number of all-reduces for a token."""
        return _SUMS_OF_A_BLOCK * self.network.blocks

    def compute_seconds(self, workers: int) -> float:
        """Return the time for which each of `workers` workers computes between two all-reduces.

        It reads from memory or computes, whichever takes longer (Pope et al., "Efficiently scaling transformer
        inference", MLSys 2023, section 2). The last layer is spread evenly over all blocks.
        """
        weights, tokens = self.network.multiplied, self.sequences * self.context
        kept = self.network.kept * self.network.blocks * tokens * _VALUE_BYTES
        reading = (weights * DTYPE_BYTES[self.dtype] + kept) / self.memory_rate
        computing = 2 * weights * self.sequences / self.flops
        return max(reading, computing) / (workers * self.sums)

    def _problems(self) -> Iterator[str]:
        if not self.network.kept or self.network.active is not None:
            able = [name for name, one in NEURAL_NETWORKS.items() if one.kept and one.active is None]
            why = "has experts" if self.network.kept else "generates no text"
            yield f"model: {self.model} {why}; choose {', '.join(able)}"
