"""`fanin cost`: the price of GPUs that wait for gradients, from analytical models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.cli_errors import failure
from fanin.options import several
from fanin.output import say
from fanin.topologies.units import BYTES, FLOPS, RATES, TIMES, percent_text, quantity_text

if TYPE_CHECKING:
    from pydantic import ValidationError
    from rich.table import Table

    from fanin.experiments.models.cost import Cost, Job


def cost(
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|COUNT", help="A published model, such as llama-3-8b, or parameters: 7B"),
    ] = None,
    parameters: Annotated[
        str | None, typer.Option(metavar="COUNT", help="Parameters of the model, instead of --model")
    ] = None,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="Type of gradients on the network: fp32, bf16, fp16, fp8")
    ] = "fp32",
    tensor: Annotated[int, typer.Option(help="GPUs that share each layer, all in one server")] = 1,
    pipeline: Annotated[int, typer.Option(help="Stages of layers")] = 1,
    data: Annotated[
        int | None, typer.Option(help="Copies of the model, instead of --gpus", show_default=False)
    ] = None,
    zero: Annotated[int, typer.Option(help="Stage of ZeRO, 1 to 3; 0 for complete copies")] = 0,
    compute: Annotated[
        str | None, typer.Option(metavar="TIME", help="Compute time of a step, such as '2 s'")
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Tokens of a step on all GPUs, such as 4M, instead of --compute (6 FLOP per token and parameter)",
        ),
    ] = None,
    global_batch: Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Samples of a step on all GPUs, instead of --tokens where --model has a name",
        ),
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Samples of a micro-batch; 1 by default", show_default=False)
    ] = None,
    flops: Annotated[
        str | None,
        typer.Option(
            metavar="RATE", help="FLOP/s of a GPU, with --tokens; 989 TFLOP/s by default (H100, bf16)"
        ),
    ] = None,
    utilization: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of --flops that a step reaches; 40% by default"),
    ] = None,
    gpus: Annotated[
        list[str],
        typer.Option(
            metavar="COUNT,…",
            help="GPUs of the cluster, by default 256,1024,4096; may be repeated",
            show_default=False,
        ),
    ] = [],  # noqa: B006 - typer's way
    gpus_per_server: Annotated[
        int, typer.Option(help="GPUs of a server, which sum their gradients first")
    ] = 8,
    nics: Annotated[int | None, typer.Option(help="NICs of a server; one per GPU by default")] = None,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Rate of a NIC in each direction")] = "400 Gb/s",
    latency: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Latency between servers, or to the root of the aggregation tree and back"
        ),
    ] = "10 us",
    overlap: Annotated[
        str,
        typer.Option(metavar="SHARE", help="Share of the compute time in which gradients are already sent"),
    ] = "0%",
    algorithm: Annotated[
        list[str],
        typer.Option(
            metavar="NAME,…",
            help="in-network, ring, halving-doubling, double-binary-tree, parameter-server; may be repeated",
        ),
    ] = ["in-network", "ring"],  # noqa: B006
    price: Annotated[float | None, typer.Option(help="Price of a GPU in $ per hour; 30 by default")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each row")] = False,
) -> None:
    """Estimate how long GPUs wait for gradients, and the price.

    The estimate uses analytical models (docs/reference/cost.md). Give the compute time of a step, or its tokens, or for
    a published model its global batch. Models: resnet-50, bert-large, gpt-3-175b, llama-3-8b, llama-3-70b,
    mixtral-8x7b.

    Examples:
        fanin cost --parameters 175G --dtype bf16 --compute "2 s" --nics 1
        fanin cost --model llama-3-8b --zero 1 --global-batch 4096
    """
    # Imported here to keep --help fast.
    from pydantic import ValidationError

    from fanin.experiments.models.cost import Job, costs

    counted = model is not None and model[:1].isdigit()
    if model is not None and parameters is not None:
        raise failure("cost", "--parameters: replaces --model; leave out one of them", 2)
    given = {
        "model": None if counted else model,
        "parameters": model if counted else parameters,
        "dtype": dtype,
        "tensor": tensor,
        "pipeline": pipeline,
        "data": data,
        "zero": zero,
        "compute": compute,
        "tokens": tokens,
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "flops": flops,
        "utilization": utilization,
        "gpus": several("--gpus", gpus) or None,
        "gpus_per_server": gpus_per_server,
        "nics": nics,
        "rate": rate,
        "latency": latency,
        "overlap": overlap,
        "algorithm": several("--algorithm", algorithm),
        "price": price,
    }
    try:
        job = Job.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        raise failure("cost", "\n".join(_explained(error, counted=counted)), 2) from None
    found = costs(job)
    if as_json:
        for one in found:
            say(json.dumps(asdict(one) | {"dollars_per_day": one.dollars_per_day}))
        return
    from fanin.table import print_table

    print_table(_table(found), 2)
    for line in (*_formulas(job, found), *_assumptions(job)):
        say(line)


def _explained(error: ValidationError, *, counted: bool) -> Iterator[str]:
    """Yield each wrong option and how to correct it; `counted`: --model has a number of parameters."""

    def option(name: str) -> str:
        return "--model" if counted and name == "parameters" else f"--{name.replace('_', '-')}"

    for one in error.errors():
        text = str(one.get("ctx", {}).get("error", one["msg"]))
        if one["loc"]:
            yield f"{option(str(one['loc'][0]))} {one['input']}: {text}"
        else:
            for line in text.splitlines():
                name, _, rest = line.partition(": ")
                yield f"{option(name)}: {re.sub('`([a-z_]+)`', lambda key: option(key[1]), rest)}"


def _table(found: list[Cost]) -> Table:
    from fanin.table import new_table

    pipelined = any(one.pipeline_seconds for one in found)
    waits = ["s pipeline"] if pipelined else []
    table = new_table(
        ["GPUs", "algorithm"], "GB sent", "s", "s exposed", *waits, "idle", "idle $ a day", "$ a step"
    )
    for one in found:
        table.add_row(
            f"{one.gpus:,}",
            one.algorithm,
            f"{one.bytes_each_way / 1e9:,.4g}",
            f"{one.communication_seconds:.4g}",
            f"{one.exposed_seconds:.4g}",
            *([f"{one.pipeline_seconds:.4g}"] if pipelined else []),
            f"{one.idle_share:.1%}",
            f"{one.dollars_per_day:,.0f}",
            f"{one.dollars_per_step:,.4g}",
        )
    return table


def _formulas(job: Job, found: list[Cost]) -> Iterator[str]:
    """Yield the formulas of the first cluster with its numbers."""
    from fanin.experiments.models.closed_forms import formula, sharded_formula
    from fanin.workers.host_based.algorithms.all_reduce import PIECE

    def seconds(number: float) -> str:
        return quantity_text(number, TIMES)

    first = [one for one in found if one.gpus == found[0].gpus]
    calls, waits = "", ""
    if job.zero:
        scatters, gathers = job.sharded_calls(first[0].gpus)
        calls = f"{scatters + gathers} · "
    if job.pipeline > 1:
        waits = f" + {seconds(first[0].pipeline_seconds)}"
    servers, compute = first[0].servers, seconds(first[0].compute_seconds)
    numbers = {
        "n": str(servers),
        "S": f"({quantity_text(job.gradient_bytes, BYTES)})",
        "B": f"({quantity_text(job.bandwidth, BYTES)}/s)",
        "L": seconds(job.latency),
        "p": f"({quantity_text(PIECE, BYTES)})",
    }
    stage = " of a stage" if job.pipeline > 1 else ""
    yield (
        f"\nWith {first[0].gpus:,} GPUs: n = {servers} servers{stage}, S bytes of gradients, B bytes/s, L of latency"
    )
    if job.zero:
        yield f"ZeRO-{job.zero}: {scatters} reduce-scatter and {gathers} all-gather in a step, each of S bytes"
    if job.pipeline > 1:
        each = job.micro_batches(first[0].gpus)
        yield (
            f"Pipeline: ({job.pipeline}-1)·({compute}/{each} micro-batches of each copy + two sends) = "
            f"{seconds(first[0].pipeline_seconds)} of waiting for other stages"
        )
    for one in first:
        text = sharded_formula(one.algorithm) if job.zero else formula(one.algorithm, servers)
        text = f"{calls}({text})" if job.zero else text
        filled = re.sub(r"\b[nSBLp]\b", lambda symbol: numbers[symbol[0]], text)
        time, exposed = seconds(one.communication_seconds), seconds(one.exposed_seconds)
        yield f"\n{one.algorithm}"
        yield f"  time     {text}"
        yield f"           = {filled} = {time}"
        yield f"  exposed  max(0, {time} - {percent_text(job.overlap)} · {compute}) = {exposed}"
        yield f"  idle     {_sum(exposed, waits)} / ({compute}{waits} + {exposed}) = {one.idle_share:.1%}"
        yield (
            f"  price    {one.idle_share:.1%} · {one.gpus:,} GPUs · {job.price:,g} $ "
            f"= {one.dollars_per_hour:,.0f} $ an hour"
        )
        yield (
            f"  step     {seconds(one.step_seconds)} · {one.gpus:,} GPUs · {job.price:,g} $ an hour "
            f"= {one.dollars_per_step:,.4g} $"
        )


def _sum(exposed: str, waits: str) -> str:
    return f"({exposed}{waits})" if waits else exposed


def _assumptions(job: Job) -> Iterator[str]:
    from fanin.controller.tree import SLOTS
    from fanin.experiments.workloads.neural_networks import DTYPE_BYTES

    yield "\nAssumptions:"
    yield (
        f"- Gradients are sent in {job.dtype}, {DTYPE_BYTES[job.dtype]} B for each parameter; --dtype changes that."
    )
    if job.compute is None:
        yield (
            f"- A GPU computes at {quantity_text(job.flops, FLOPS)}, of which a step reaches "
            f"{percent_text(job.utilization)}; --flops and --utilization change that."
        )
    when = (
        f"during the last {percent_text(job.overlap)} of the computing"
        if job.overlap
        else "after the computing"
    )
    yield f"- Gradients are sent {when}; --overlap changes that."
    yield (
        f"- A server has {quantity_text(8 * job.bandwidth, RATES)} to the network; --nics and --rate change that. "
        f"A GPU costs {job.price:,g} $ an hour; --price changes that."
    )
    if job.network and job.compute is None:
        yield (
            f"- {job.network.name}: {job.network.parameters:,} parameters; a step of {job.network.sample} computes "
            f"{quantity_text(job.network.step_flop, FLOPS).removesuffix('/s')}."
        )
    elif job.tokens is not None:
        yield "- A step computes 6 · parameters · tokens / (GPUs · FLOP/s · utilization)."
    if job.pipeline == job.tensor == 1:
        yield "- Each server has all gradients. For a model that is split, set --tensor and --pipeline."
    else:
        yield "- All stages have equal shares of the parameters. A server has tensor groups of one stage only."
        yield "- Sums and gathers within a server, of gradients and of tensor groups, take no time."
    if job.pipeline == job.tensor == 1:
        yield "- Summing among the GPUs of a server takes no time."
    if job.network and job.network.active is not None:
        yield "- Experts are in every copy: their gradients are summed like all others, and tokens stay in the server."
    yield "- Links carry no other traffic and lose nothing. Uplinks are as fast as all links of their hosts together."
    yield "- Headers and processor time are not counted."
    if "in-network" in job.algorithm:
        flying = quantity_text(job.bandwidth * job.latency, BYTES)
        held = quantity_text(SLOTS * 1024, BYTES)
        yield (
            f"- In-network: switches hold all data in flight, here {flying} per server "
            f"(an aggregation tree of fanin: {held})."
        )
        if job.dtype != "fp32":
            yield (
                f"- In-network: switches add {job.dtype} directly; those of fanin add integers of 32 or 16 bits, which "
                "carry fp32, bf16 and fp16."
            )
