"""The cost of GPUs that wait for an all-reduce: the share of time in which they idle, and its price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fanin.experiments.models.closed_forms import bytes_each_way, in_network
from fanin.experiments.scenario.tables.table import AlgorithmName, Table
from fanin.topologies.units import Count, Flops, Probability, Rate, Seconds
from fanin.workers.collective import Algorithm
from fanin.workers.host_based.algorithms.all_reduce import Hosts
from fanin.workers.host_based.algorithms.registry import algorithm_named

PRICE = 30.0  # $ per GPU and hour
CLUSTERS = (256, 1024, 4096)  # GPUs

Dtype = Literal["fp32", "bf16", "fp16", "fp8"]
_BYTES: dict[Dtype, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def _listed(value: Any) -> Any:
    """Return a single word as a list of it."""
    return [value] if isinstance(value, str) else value


class Job(Table):
    """A training whose gradients are all-reduced after each step, on equal servers.

    The time of a step is either `compute`, or follows from `tokens`, `flops` and `utilization`.

    Attributes:
        parameters: Parameters of the model.
        dtype: Type of the gradients.
        compute: Seconds of a step.
        tokens: Tokens of a step, over all GPUs together.
        flops: Floating-point operations per second of a GPU.
        utilization: The share of flops that is reached.
        gpus: Number of GPUs in each cluster.
        gpus_per_server: GPUs in a server.
        nics: Network cards of a server; None: one for each GPU.
        rate: Rate of a network card in bits/s, each way.
        latency: Seconds from server to server, or to the root of the tree of switches and back.
        overlap: The share of a step's computing time during which gradients are already being sent.
        algorithm: Algorithms to compare.
        price: $ per GPU and hour.
    """

    parameters: Annotated[Count, Field(gt=0, le=10**15)]
    dtype: Dtype = "fp32"
    compute: Annotated[Seconds, Field(gt=0)] | None = None
    tokens: Annotated[Count, Field(gt=0, le=10**15)] | None = None
    flops: Annotated[Flops, Field(gt=0, le=10**20)] = 989 * 10**12
    utilization: Annotated[Probability, Field(gt=0)] = 0.4
    gpus: Annotated[
        tuple[Annotated[Count, Field(gt=0, le=10**6)], ...], BeforeValidator(_listed), Field(min_length=1)
    ] = CLUSTERS
    gpus_per_server: Annotated[int, Field(ge=1)] = 8
    nics: Annotated[int | None, Field(ge=1)] = None
    rate: Annotated[Rate, Field(gt=0, le=10**18)] = 400 * 10**9
    latency: Seconds = 10e-6
    overlap: Probability = 0.0
    algorithm: Annotated[tuple[AlgorithmName, ...], BeforeValidator(_listed)] = ("in-network", "ring")
    price: Annotated[float, Field(ge=0, allow_inf_nan=False)] = PRICE

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a server's vector."""
        return self.parameters * _BYTES[self.dtype]

    @property
    def bandwidth(self) -> float:
        """Return the bytes per second that a server sends or receives."""
        return (self.nics or self.gpus_per_server) * self.rate / 8

    def servers(self, gpus: int) -> int:
        """Return the number of servers in a cluster, which are the workers of an all-reduce."""
        return gpus // self.gpus_per_server

    def compute_seconds(self, gpus: int) -> float:
        """Return the computing time of a step.

        A transformer takes 6 floating-point operations for each parameter and token: Kaplan et al., "Scaling laws for
        neural language models", 2020, section 2.1.
        """
        if self.tokens is None:
            assert self.compute is not None
            return self.compute
        return 6 * self.parameters * self.tokens / (gpus * self.flops * self.utilization)

    def _problems(self) -> Iterator[str]:
        if (self.compute is None) == (self.tokens is None):
            yield "compute: give compute, such as '2 s', or tokens, such as '4M'"
        elif self.compute is not None:
            for name in sorted({"flops", "utilization"} & self.model_fields_set):
                yield f"{name}: has no effect with compute; leave it out, or replace compute with tokens"
        for gpus in self.gpus:
            if gpus % self.gpus_per_server:
                yield f"gpus: {gpus} do not fill servers of {self.gpus_per_server}; change gpus_per_server"
            elif self.servers(gpus) < 2:
                yield f"gpus: {gpus} are in one server, and nothing crosses the network; change gpus_per_server"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a job in a cluster, with one algorithm, in each step.

    Attributes:
        algorithm: The algorithm.
        gpus: Number of GPUs.
        servers: Number of servers.
        bytes_each_way: Bytes that the busiest server sends, and receives.
        compute_seconds: Time of computing.
        communication_seconds: Time of the all-reduce.
        exposed_seconds: The part of it in which GPUs wait.
        idle_share: The share of the time in which GPUs idle.
        dollars_per_hour: Price of that time.
    """

    algorithm: Algorithm
    gpus: int
    servers: int
    bytes_each_way: float
    compute_seconds: float
    communication_seconds: float
    exposed_seconds: float
    idle_share: float
    dollars_per_hour: float

    @property
    def dollars_per_day(self) -> float:
        """Return the price of the time in which GPUs idle, for all GPUs and a day."""
        return 24 * self.dollars_per_hour


def costs(job: Job) -> list[Cost]:
    """Return the costs for each cluster and each algorithm."""
    return [_cost(job, gpus, algorithm) for gpus in job.gpus for algorithm in job.algorithm]


def _cost(job: Job, gpus: int, algorithm: Algorithm) -> Cost:
    size, servers, compute = job.gradient_bytes, job.servers(gpus), job.compute_seconds(gpus)
    if algorithm == "in-network":
        seconds = in_network(size, job.latency, job.bandwidth, window=size, ahead=0.0)
    else:
        hosts = Hosts(servers, lambda *_: job.latency, job.bandwidth)
        seconds = algorithm_named(algorithm).seconds(size, hosts)
    exposed = max(0.0, seconds - job.overlap * compute)
    share = idle_share(compute, exposed)
    return Cost(
        algorithm=algorithm,
        gpus=gpus,
        servers=servers,
        bytes_each_way=bytes_each_way(algorithm, servers, size),
        compute_seconds=compute,
        communication_seconds=seconds,
        exposed_seconds=exposed,
        idle_share=share,
        dollars_per_hour=idle_price(share, gpus, job.price),
    )


def idle_share(compute: float, exposed: float) -> float:
    """Return the share of the time in which GPUs idle.

    Args:
        compute: Seconds of computing in each step.
        exposed: Seconds of waiting after that.
    """
    return exposed / (compute + exposed)


def idle_price(share: float, gpus: int, price: float = PRICE) -> float:
    """Return the price of idle GPUs in $ per hour.

    Args:
        share: The share of the time in which they idle.
        gpus: Number of GPUs.
        price: $ per GPU and hour.
    """
    return share * gpus * price
