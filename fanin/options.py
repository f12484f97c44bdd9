"""Options that several verbs have: the network, what its switches are, and which of those that are up is meant."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from fanin.experiments.scenario.tables.units import VectorSize
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.testbed.running import running_networks
from fanin.topologies.units import RATES, Probability, quantity


def _rate(text: str) -> int:
    """In bits/s."""
    try:
        return round(quantity(text, RATES, "100 Mb/s"))
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}") from None


def probability(text: str) -> float:
    """What an option such as --loss takes: 0.01 or 1%."""
    try:
        return TypeAdapter[float](Probability).validate_python(text)
    except ValidationError as error:
        raise typer.BadParameter(f"{text}: {_why(error)}") from None


def several(texts: Sequence[str]) -> list[str]:
    """Return the values of an option that takes some with commas between them, and may be given several times."""
    return [value.strip() for text in texts for value in text.split(",")]


def vector_sizes(texts: Sequence[str]) -> list[int]:
    """Return what --sizes takes, `64 kB,1000 elements`, in bytes."""
    found = []
    for size in several(texts):
        try:
            found.append(TypeAdapter[int](VectorSize).validate_python(size))
        except ValidationError as error:
            raise typer.BadParameter(f"{size}: {_why(error)}", param_hint="--sizes") from None
    return found


def _why(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def _file(name: str, metavar: str, text: str) -> Any:
    """An option that takes an existing file; its path is complete from then on."""
    return typer.Option(name, metavar=metavar, exists=True, dir_okay=False, resolve_path=True, help=text)


Workers = Annotated[int, typer.Option(min=2, help="workers, spread evenly over the leaves")]
Leaves = Annotated[int, typer.Option(min=1, help="leaf switches, one for each rack")]
Spines = Annotated[int, typer.Option(min=0, help="spine switches; 0 with a single leaf")]
Rate = Annotated[
    int | None,
    typer.Option(
        parser=_rate,
        metavar="RATE",
        help="of every link, such as '100 Mb/s'",
        show_default="100 Mb/s; with BMv2 400 kb/s",
    ),
]
Switch = Annotated[
    SwitchKind, typer.Option(help="what runs as a switch: ours, or BMv2's simple_switch_grpc (FANIN_BMV2)")
]
ProgramCompiler = Annotated[
    Compiler, typer.Option(help="what compiles the P4 program: ours, or p4c-bm2-ss (FANIN_P4C)")
]
TopologyFile = Annotated[
    Path | None,
    _file(
        "--topology",
        "FILE.toml",
        "the network as a file, in the place of --workers, --leaves, --spines, --rate and --offload",
    ),
]
Program = Annotated[
    Path | None,
    _file("--program", "FILE.p4", "a P4 program of yours, in the place of p4src/fanin.p4"),
]
ControllerFile = Annotated[
    Path | None,
    _file(
        "--controller", "FILE.py", "a file of yours that plans what switches are told (docs/how-to/own.md)"
    ),
]
WorkerFile = Annotated[
    Path | None,
    _file("--worker", "FILE.py", "a file of yours that makes in-network workers (docs/how-to/own.md)"),
]
Offload = Annotated[
    bool, typer.Option(help="many UDP datagrams in a frame, where the kernel can; sums are the same without")
]
Captures = Annotated[
    Path | None,
    typer.Option(
        "--pcap", file_okay=False, help="a folder for a capture of each port; superframes stay whole in it"
    ),
]
SwitchName = Annotated[
    str,
    typer.Argument(
        help="a switch of a network that is up, such as leaf1",
        autocompletion=lambda: [name for network in running_networks() for name in network.switches],
    ),
]
Network = Annotated[
    int | None,
    typer.Option(
        "--network", help="process id of the fanin that runs the network, if there are several (fanin ps)"
    ),
]
ScenarioFile = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO.toml",
        help="what to run: a file, or one that comes with fanin, as lesson:loss ('lesson:' lists them)",
    ),
]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE,…", help="overrides the file; may be given several times"),
]
Results = Annotated[
    Path | None,
    typer.Option(
        file_okay=False, help="where the results go", show_default="results/ and the scenario's name"
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        envvar="DASK_SCHEDULER_ADDRESS",
        help="a Dask scheduler, such as tcp://10.0.0.1:8786, whose workers run virtual points",
        show_default="this machine runs them",
    ),
]
Jobs = Annotated[
    int | None, typer.Option(min=1, help="virtual points that run concurrently", show_default="all cores")
]


def brought(**files: Path | None) -> list[str]:
    """Options that name a file of the user's, as changes of a scenario: by the key of that name."""
    return [f"{key}={json.dumps(str(path), ensure_ascii=False)}" for key, path in files.items() if path]


def refuse_beside_topology(file: Path | None, context: typer.Context) -> None:
    """typer.BadParameter if there is a topology file and, beside it, an option for what it says."""
    for name in ("workers", "leaves", "spines", "rate", "offload"):
        source = context.get_parameter_source(name)
        if file and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"{file} says that already; leave it out", param_hint=f"--{name}")


def hosts_per_leaf(workers: int, leaves: int) -> int:
    """How many workers each leaf has; typer.BadParameter if that is not a whole number."""
    if workers % leaves:
        raise typer.BadParameter(
            f"{workers} workers do not spread evenly over {leaves} leaves", param_hint="--workers"
        )
    return workers // leaves
