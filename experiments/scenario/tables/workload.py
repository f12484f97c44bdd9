"""The table `workload` of a scenario: the training of a published model, or a trace of a training."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import ceil
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from fanin.controller.tree import FIRST_UDP_PORT, LAST_UDP_PORT
from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.units import ELEMENT_BYTES, VectorSize
from fanin.experiments.workloads.neural_networks import (
    DTYPE_BYTES,
    NEURAL_NETWORKS,
    Dtype,
    gradient_buckets,
    neural_network_named,
)
from fanin.experiments.workloads.trace import Trace, TraceCall
from fanin.topologies.units import Count, Flops, Probability
from fanin.workers.collective import Operation
from fanin.workers.host_based.transport import FIRST_PEER_PORT

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

_OF_A_MODEL = ("dtype", "micro_batch", "global_batch", "bucket")
MOST_JOBS = LAST_UDP_PORT - FIRST_UDP_PORT + 1  # that sum in the network at once


def _listed(value: Any) -> Any:
    """Return the name of a single file as a list of it."""
    return [value] if isinstance(value, str | Path) else value


class Workload(Table):
    """A training, from which the size of vectors and the computing times of a step follow."""

    model: Annotated[
        str | None,
        AfterValidator(lambda name: name if name is None else neural_network_named(name).name),
        Field(
            description="name of a published model; fills in size, and the tables step or parallelism",
            json_schema_extra={"enum": [*NEURAL_NETWORKS]},
        ),
    ] = None
    trace: Annotated[
        tuple[Path, ...],
        BeforeValidator(_listed),
        Field(description="traces of a training, one file or several, relative to this file; fill in size"),
    ] = ()
    dtype: Annotated[Dtype, Field(description="model: type of the gradients as they travel")] = "fp32"
    micro_batch: Annotated[
        int, Field(ge=1, description="model: samples that a worker, or a stage, computes at once")
    ] = 1
    global_batch: Annotated[
        Annotated[Count, Field(gt=0)] | None,
        Field(description="model, with parallelism: samples of a step, of all copies together"),
    ] = None
    flops: Annotated[
        Flops, Field(gt=0, le=10**20, description="floating-point operations per second of a worker")
    ] = 989 * 10**12
    utilization: Annotated[Probability, Field(gt=0, description="share of flops that is reached")] = 0.4
    bucket: Annotated[
        VectorSize | None,
        Field(description="model: gradients in a bucket; default: that of DDP, 1 MiB first and then 25 MiB"),
    ] = None
    scale: Annotated[
        Probability,
        Field(gt=0, le=1, description="share of all bytes and of all computing times that is run"),
    ] = 1.0

    def of_trace(self, settings: Mapping[str, Any], trace: Trace) -> dict[str, Any]:
        """Return the keys of a scenario that follow from the trace.

        Args:
            settings: The keys of the scenario.
            trace: The trace.

        Raises:
            ValueError: If the scenario and the trace do not fit together.
        """
        largest = max(
            (array_bytes(call, self.scale) for calls in trace.groups.values() for call in calls), default=4
        )
        if largest > _LARGEST:
            raise ValueError(
                f"workload.scale: the largest array has {largest / 1e9:,.1f} GB, more than a run can hold; "
                f"set it to at most {_LARGEST / largest * self.scale:.1g}, which also shortens all computing times"
            )
        summing, trees = len(groups_in_network(trace, {"all-reduce"})), settings.get("trees", 1)
        most = MOST_JOBS // trees if isinstance(trees, int) and trees > 0 else MOST_JOBS
        if settings.get("algorithm", "in-network") == "in-network" and summing > most:
            along = f" along {trees} trees each" if trees != 1 else ""
            raise ValueError(
                f"algorithm: the trace has all-reduces of {summing} groups, but switches sum for {most} at "
                f"once{along}; set algorithm = 'ring'"
            )
        flows = settings.get("flows_per_pair", 1)
        ports = sum(len(ranks) for ranks, _ in trace.groups) * (flows if isinstance(flows, int) else 1)
        if FIRST_PEER_PORT + ports > 1 << 16:
            raise ValueError(
                f"workload.trace: has {len(trace.groups)} groups, which need {ports:,} UDP ports of a host; there are "
                f"{(1 << 16) - FIRST_PEER_PORT:,}"
            )
        filled: dict[str, Any] = {"size": f"{largest} B"}
        hosts, workers = settings.get("hosts"), settings.get("workers")
        count = len(hosts) if isinstance(hosts, list | tuple) and hosts else workers
        if count is None:
            filled["workers"] = len(trace.ranks)
        elif count != len(trace.ranks):
            raise ValueError(
                f"workers: are {count}, but the trace has {len(trace.ranks)} ranks; leave workers out"
            )
        return filled

    def filled_in(self, parallelism: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the keys of a scenario that follow from the model, as the scenario's file would have them.

        Args:
            parallelism: The keys of the scenario's table of this name. None if it has no such table.

        Raises:
            ValueError: If the model and the table do not fit together.
        """
        assert self.model is not None
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

    @property
    def step_flop(self) -> float | None:
        """Return the floating-point operations of a worker's step; None for a trace."""
        return None if self.model is None else neural_network_named(self.model).step_flop * self.micro_batch

    @property
    def intensity(self) -> float | None:
        """Return the floating-point operations of a worker's step for each byte of its gradients; None for a trace."""
        if self.model is None or self.step_flop is None:
            return None
        return self.step_flop / (neural_network_named(self.model).parameters * DTYPE_BYTES[self.dtype])

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

    def _problems(self) -> Iterator[str]:
        if (self.model is None) == (not self.trace):
            yield f"model: give either model or trace; models are {', '.join(NEURAL_NETWORKS)}"
        if self.trace:
            for name in _OF_A_MODEL:
                if getattr(self, name) != type(self).model_fields[name].default:
                    yield f"{name}: belongs to a model; a trace has its own; leave it out"


def groups_in_network(trace: Trace, operations: Collection[Operation]) -> list[tuple[int, ...]]:
    """Return the ranks of each group that calls one of these operations, first those of groups with all-reduces.

    Args:
        trace: The trace.
        operations: Operations that switches carry out.
    """
    called = {
        ranks: {call.operation for call in calls} for (ranks, send), calls in trace.groups.items() if not send
    }
    found = [ranks for ranks in called if not called[ranks].isdisjoint(operations)]
    return sorted(found, key=lambda ranks: "all-reduce" not in called[ranks])


def array_bytes(call: TraceCall, scale: float) -> int:
    """Return the bytes of an array of a call on a scale, in whole values for each rank of an all-to-all."""
    unit = ELEMENT_BYTES * (len(call.ranks) if call.operation == "all-to-all" else 1)
    return max(1, ceil(call.size * scale / unit)) * unit
