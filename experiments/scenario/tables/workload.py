"""The table `workload` of a scenario: the training of a published model."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES, VectorSize
from fanin.experiments.workloads.neural_networks import (
    DTYPE_BYTES,
    NEURAL_NETWORKS,
    Dtype,
    gradient_buckets,
    neural_network_named,
)
from fanin.topologies.units import Count, Flops, Probability

_MEBI = 2**20
_FIRST_BUCKET, _BUCKET = 1 * _MEBI, 25 * _MEBI  # of PyTorch's DistributedDataParallel
_ACTIVATION_BYTES = 2
_LARGEST = 2 * 10**9  # bytes of a worker's gradients

# Keys that a model fills in.
FILLED_IN = frozenset(
    {
        ("size",),
        *(("step", name) for name in ("forward", "backward")),
        *(
            ("parallelism", name)
            for name in ("forward", "backward", "layers", "micro_batches", "activations", "bucket")
        ),
    }
)


class Workload(Table):
    """A training, from which the size of vectors and the computing times of a step follow."""

    model: Annotated[
        str,
        AfterValidator(lambda name: neural_network_named(name).name),
        Field(
            description="name of a published model; fills in size, and the tables step or parallelism",
            json_schema_extra={"enum": [*NEURAL_NETWORKS]},
        ),
    ]
    dtype: Annotated[Dtype, Field(description="type of the gradients as they travel")] = "fp32"
    micro_batch: Annotated[
        int, Field(ge=1, description="samples that a worker, or a stage, computes at once")
    ] = 1
    global_batch: Annotated[
        Annotated[Count, Field(gt=0)] | None,
        Field(description="with parallelism: samples of a step, of all copies together"),
    ] = None
    flops: Annotated[
        Flops, Field(gt=0, le=10**20, description="floating-point operations per second of a worker")
    ] = 989 * 10**12
    utilization: Annotated[Probability, Field(gt=0, description="share of flops that is reached")] = 0.4
    bucket: Annotated[
        VectorSize | None,
        Field(description="gradients in a bucket; default: that of DDP, 1 MiB first and then 25 MiB"),
    ] = None
    scale: Annotated[
        Probability,
        Field(gt=0, le=1, description="share of all bytes and of all computing times that is run"),
    ] = 1.0

    def filled_in(self, parallelism: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the keys of a scenario that follow from the model, as the scenario's file would have them.

        Args:
            parallelism: The keys of the scenario's table of this name. None if it has no such table.

        Raises:
            ValueError: If the model and the table do not fit together.
        """
        network, width = neural_network_named(self.model), DTYPE_BYTES[self.dtype]
        seconds = network.forward_flop * self.micro_batch / (self.flops * self.utilization) * self.scale
        times = {"forward": seconds, "backward": 2 * seconds}
        if parallelism is None:
            limits = [_FIRST_BUCKET, _BUCKET] if self.bucket is None else [self.bucket, self.bucket]
            first, limit = (-(-limit // width) for limit in limits)
            buckets = [
                (self._scaled(bucket.parameters * width), bucket.ready)
                for bucket in gradient_buckets(network, first, limit)
            ]
            total = sum(size for size, _ in buckets)
            self._check(total)
            tables = [{"size": f"{size} B", "ready": ready} for size, ready in buckets]
            return {"size": f"{total} B", "step": {**times, "buckets": tables}}
        if not network.width:
            raise ValueError(f"parallelism: {self.model} has no equal blocks to cut; leave the table out")
        if self.global_batch is None:
            raise ValueError(
                "workload.global_batch: missing; add the samples of a step of all copies together, such as 1024"
            )
        if self.global_batch % self.micro_batch:
            raise ValueError(
                f"workload.global_batch: is {self.global_batch}, must be a multiple of micro_batch = {self.micro_batch}"
            )
        parts = [parallelism.get(name, 1) for name in ("tensor", "pipeline")]
        model = parts[0] * parts[1] if all(isinstance(part, int) and part > 0 for part in parts) else 1
        share = ceil(network.parameters * width * self.scale / (ELEMENT_BYTES * model)) * ELEMENT_BYTES
        self._check(share)
        activations = self.micro_batch * network.tokens * network.width * _ACTIVATION_BYTES
        return {
            "size": f"{share * model} B",
            "parallelism": {
                **times,
                "layers": network.blocks,
                "micro_batches": self.global_batch // self.micro_batch,
                "activations": f"{self._scaled(activations)} B",
                "bucket": f"{self._scaled(self.bucket or _BUCKET)} B",
            },
        }

    def _scaled(self, size: int) -> int:
        """Return a number of bytes on this scale, in whole values."""
        return ceil(size * self.scale / ELEMENT_BYTES) * ELEMENT_BYTES

    def _check(self, size: int) -> None:
        """Refuse vectors that fill the memory."""
        if size > _LARGEST:
            share = _LARGEST / size * self.scale
            raise ValueError(
                f"workload.scale: each worker has {size / 1e9:,.1f} GB of gradients, more than a run can hold; "
                f"set it to at most {share:.1g}, which also shortens all computing times"
            )
