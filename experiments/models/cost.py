"""The cost of GPUs that wait for an all-reduce: the share of time in which they idle, and its price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from fanin.experiments.models.closed_forms import (
    bytes_each_way,
    in_network,
    sharded,
    sharded_bytes_each_way,
)
from fanin.experiments.scenario.tables.table import AlgorithmName, Table
from fanin.experiments.workloads.neural_networks import (
    DTYPE_BYTES,
    Dtype,
    NeuralNetwork,
    neural_network_named,
)
from fanin.topologies.units import Count, Flops, Probability, Rate, Seconds
from fanin.workers.collective import Algorithm
from fanin.workers.host_based.algorithms.all_reduce import Hosts
from fanin.workers.host_based.algorithms.registry import algorithm_named

PRICE = 30.0  # $ per GPU and hour
CLUSTERS = (256, 1024, 4096)  # GPUs


def _listed(value: Any) -> Any:
    """Return a single word as a list of it."""
    return [value] if isinstance(value, str) else value


class Job(Table):
    """A training whose gradients are summed after each step, on equal servers.

    The time of a step is either `compute`, or follows from `tokens` or `global_batch` with `flops` and `utilization`.
    Ranks are numbered as in Megatron-LM: a server has tensor groups of several copies, all of one stage.

    Attributes:
        model: Name of a published model.
        parameters: Parameters of any other model.
        dtype: Type of the gradients.
        tensor: GPUs that share each layer.
        pipeline: Number of stages of layers.
        data: Number of copies of the model. None: as many as the clusters have GPUs for.
        zero: Stage of ZeRO, or 0 for copies that each keep everything.
        compute: Seconds for which a GPU computes in a step.
        tokens: Tokens of a step, over all GPUs together.
        global_batch: Samples of a step, over all GPUs together.
        micro_batch: Samples of a micro-batch.
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

    model: Annotated[str, AfterValidator(lambda name: neural_network_named(name).name)] | None = None
    parameters: Annotated[Count, Field(gt=0, le=10**15)] | None = None
    dtype: Dtype = "fp32"
    tensor: Annotated[int, Field(ge=1)] = 1
    pipeline: Annotated[int, Field(ge=1)] = 1
    data: Annotated[int | None, Field(ge=2)] = None
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    compute: Annotated[Seconds, Field(gt=0)] | None = None
    tokens: Annotated[Count, Field(gt=0, le=10**15)] | None = None
    global_batch: Annotated[Count, Field(gt=0, le=10**12)] | None = None
    micro_batch: Annotated[int, Field(ge=1)] = 1
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
    def network(self) -> NeuralNetwork | None:
        """Return the published model; None if only the number of parameters is known."""
        return None if self.model is None else neural_network_named(self.model)

    @property
    def clusters(self) -> tuple[int, ...]:
        """Return the number of GPUs of each cluster."""
        return self.gpus if self.data is None else (self.data * self.tensor * self.pipeline,)

    @property
    def gradient_bytes(self) -> int:
        """Return the bytes of a server's vector, which has the gradients of one stage."""
        parameters = self.network.parameters if self.network else self.parameters
        assert parameters is not None
        return -(-parameters // self.pipeline) * DTYPE_BYTES[self.dtype]

    @property
    def bandwidth(self) -> float:
        """Return the bytes per second that a server sends or receives."""
        return (self.nics or self.gpus_per_server) * self.rate / 8

    def copies(self, gpus: int) -> int:
        """Return the number of copies of the model in a cluster."""
        return gpus // (self.tensor * self.pipeline)

    def servers(self, gpus: int) -> int:
        """Return the number of servers with the same stage, which are the workers of an all-reduce."""
        return self.copies(gpus) * self.tensor // self.gpus_per_server

    def micro_batches(self, gpus: int) -> int:
        """Return the micro-batches of a copy in a step, as Megatron-LM counts them; 1 if the batch is unknown."""
        return (self.global_batch or 0) // (self.micro_batch * self.copies(gpus)) or 1

    def compute_seconds(self, gpus: int) -> float:
        """Return the time for which a GPU computes in a step.

        A transformer takes 6 floating-point operations for each parameter and token: Kaplan et al., "Scaling laws for
        neural language models", 2020, section 2.1. Those of a published model are counted layer by layer.
        """
        if self.compute is not None:
            return self.compute
        if self.network:
            samples = self.global_batch if self.tokens is None else self.tokens / self.network.tokens
            assert samples is not None
            flop = self.network.step_flop * samples
        else:
            assert self.tokens is not None
            assert self.parameters is not None
            flop = 6 * self.parameters * self.tokens
        return flop / (gpus * self.flops * self.utilization)

    def pipeline_seconds(self, gpus: int) -> float:
        """Return the time of a step for which GPUs wait for other stages.

        This is the bubble (Narayanan et al., "Efficient large-scale language model training on GPU clusters using
        Megatron-LM", 2021, section 2.2), and the sends of the first micro-batch and the last one. The activations of a
        model of unknown width are not counted.
        """
        others = self.pipeline - 1
        send = self.latency
        if self.network:
            activations = 2 * self.micro_batch * self.network.tokens * self.network.width
            send += activations / (self.bandwidth * self.tensor / self.gpus_per_server)
        return others * (self.compute_seconds(gpus) / self.micro_batches(gpus) + 2 * send)

    def sharded_calls(self, gpus: int) -> tuple[int, int]:
        """Return the number of reduce-scatters and of all-gathers of a step with ZeRO.

        Stage 1 scatters gradients once and gathers parameters once. Stages 2 and 3 keep only a part of the gradients,
        and so scatter them after each micro-batch. Stage 3 keeps only a part of the parameters, and so gathers them for
        each pass of a micro-batch.
        """
        each = self.micro_batches(gpus)
        return (each if self.zero > 1 else 1), (2 * each if self.zero > 2 else 1)

    def _problems(self) -> Iterator[str]:
        if (self.model is None) == (self.parameters is None):
            yield "model: give `model`, such as 'llama-3-8b', or `parameters`, such as '7B'"
        elif self.pipeline > 1 and self.network and not self.network.width:
            yield f"pipeline: {self.model} has no equal blocks; leave `pipeline` out"
        yield from self._compute_problems()
        if self.tensor > self.gpus_per_server or self.gpus_per_server % self.tensor:
            yield f"tensor: {self.tensor} does not divide a server of {self.gpus_per_server}; change `gpus_per_server`"
            return
        if self.data is not None and "gpus" in self.model_fields_set:
            yield "gpus: follow from `data`, `tensor` and `pipeline`; leave out `gpus` or `data`"
        if self.zero and (others := set(self.algorithm) - {"in-network", "ring"}):
            yield f"zero: has no {', '.join(sorted(others))}; choose among in-network and ring"
        if self.zero > 1 and self.pipeline > 1:
            yield f"zero: stage {self.zero} cannot be combined with `pipeline`; choose stage 1"
        for gpus in self.clusters:
            yield from self._cluster_problems(gpus)

    def _compute_problems(self) -> Iterator[str]:
        """Yield what is wrong with the keys that say how long a GPU computes."""
        known = self.compute, self.tokens, self.global_batch if self.model else None
        count = sum(one is not None for one in known)
        if count == 0 or (self.compute is not None and self.tokens is not None):
            batch = ", or `global_batch`, such as 1024" if self.model else ""
            yield f"compute: give `compute`, such as '2 s', or `tokens`, such as '4M'{batch}"
        elif self.tokens is not None and self.global_batch is not None and self.model:
            yield "tokens: follow from `global_batch`; leave out one of them"
        if self.compute is not None and self.tokens is None:
            for name in sorted({"flops", "utilization"} & self.model_fields_set):
                yield f"{name}: has no effect with `compute`; leave it out, or replace `compute` with `tokens`"
        if self.global_batch is None:
            if self.pipeline > 1:
                yield "global_batch: missing; stages wait for one another for a micro-batch; add it, such as 1024"
            elif "micro_batch" in self.model_fields_set:
                yield "micro_batch: is a part of `global_batch`, which is missing; add it"

    def _cluster_problems(self, gpus: int) -> Iterator[str]:
        model = self.tensor * self.pipeline
        if model == 1 and gpus % self.gpus_per_server:
            yield f"gpus: {gpus} do not fill servers of {self.gpus_per_server}; change `gpus_per_server`"
        elif gpus % model:
            yield f"gpus: {gpus} are not a multiple of `tensor` x `pipeline` = {model}; change one of them"
        elif model > 1 and self.copies(gpus) * self.tensor % self.gpus_per_server:
            yield (
                f"gpus: {gpus} have {self.copies(gpus)} copies, whose tensor groups of {self.tensor} do not fill "
                f"servers of {self.gpus_per_server}; change `gpus` or `gpus_per_server`"
            )
        elif self.servers(gpus) < 2:
            what = "are in one server" if model == 1 else "have all copies of a stage in one server"
            yield f"gpus: {gpus} {what}, and nothing crosses the network; change `gpus_per_server`"
        elif self.global_batch is not None and self.global_batch % (self.micro_batch * self.copies(gpus)):
            yield (
                f"global_batch: is {self.global_batch}, must be a multiple of {self.copies(gpus)} copies times "
                f"`micro_batch` = {self.micro_batch}"
            )


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a job in a cluster, with one algorithm, in each step.

    Attributes:
        algorithm: The algorithm.
        gpus: Number of GPUs.
        servers: Number of servers.
        bytes_each_way: Bytes that the busiest server sends, and receives.
        compute_seconds: Time of computing.
        pipeline_seconds: Time of waiting for other stages.
        communication_seconds: Time of summing gradients, and of gathering parameters with ZeRO.
        exposed_seconds: The part of it in which GPUs wait.
        idle_share: The share of the time in which GPUs idle.
        dollars_per_hour: Price of that time.
        dollars_per_step: Price of all GPUs for a step.
    """

    algorithm: Algorithm
    gpus: int
    servers: int
    bytes_each_way: float
    compute_seconds: float
    pipeline_seconds: float
    communication_seconds: float
    exposed_seconds: float
    idle_share: float
    dollars_per_hour: float
    dollars_per_step: float

    @property
    def dollars_per_day(self) -> float:
        """Return the price of the time in which GPUs idle, for all GPUs and a day."""
        return 24 * self.dollars_per_hour

    @property
    def step_seconds(self) -> float:
        """Return the time of a step: computing, and waiting for other stages and for sums."""
        return self.compute_seconds + self.pipeline_seconds + self.exposed_seconds


def costs(job: Job) -> list[Cost]:
    """Return the costs for each cluster and each algorithm."""
    return [_cost(job, gpus, algorithm) for gpus in job.clusters for algorithm in job.algorithm]


def _cost(job: Job, gpus: int, algorithm: Algorithm) -> Cost:
    size, servers, compute = job.gradient_bytes, job.servers(gpus), job.compute_seconds(gpus)
    if job.zero:
        scatters, gathers = job.sharded_calls(gpus)
        seconds = (scatters + gathers) * sharded(algorithm, servers, size, job.latency, job.bandwidth)
        sent = sharded_bytes_each_way(algorithm, servers, size, scatters, gathers)
    else:
        sent = bytes_each_way(algorithm, servers, size)
        if algorithm == "in-network":
            seconds = in_network(size, job.latency, job.bandwidth, window=size, ahead=0.0)
        else:
            hosts = Hosts(servers, lambda *_: job.latency, job.bandwidth)
            seconds = algorithm_named(algorithm).seconds(size, hosts)
    exposed = max(0.0, seconds - job.overlap * compute)
    pipeline = job.pipeline_seconds(gpus)
    share = idle_share(compute, pipeline + exposed)
    return Cost(
        algorithm=algorithm,
        gpus=gpus,
        servers=servers,
        bytes_each_way=sent,
        compute_seconds=compute,
        pipeline_seconds=pipeline,
        communication_seconds=seconds,
        exposed_seconds=exposed,
        idle_share=share,
        dollars_per_hour=idle_price(share, gpus, job.price),
        dollars_per_step=price_of(compute + pipeline + exposed, gpus, job.price),
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


def price_of(seconds: float, gpus: int, price: float = PRICE) -> float:
    """Return the price of GPUs in $ for a time, whether they compute or idle.

    Args:
        seconds: The time.
        gpus: Number of GPUs.
        price: $ per GPU and hour.
    """
    return seconds / 3600 * gpus * price
