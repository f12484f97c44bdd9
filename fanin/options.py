"""Options that several verbs share."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from fanin.cli_errors import failure
from fanin.experiments.scenario.tables.units import VectorSize
from fanin.experiments.scenario.tools import Compiler, SwitchKind
from fanin.testbed.own_switches import own_switches
from fanin.testbed.running import running_networks
from fanin.topologies.units import RATES, Probability, quantity


def _rate(text: str) -> float:
    """Return a rate in bits/s; infinity is unlimited."""
    try:
        return math.inf if text == "unlimited" else round(quantity(text, RATES, "100 Mb/s"))
    except ValueError as error:
        raise typer.BadParameter(f"{text}: {error}; or write 'unlimited'") from None


def link_rate(rate: float | None, default: int) -> int | None:
    """Return the rate of links as topologies have it, in bits/s: None is unlimited. `rate` is from the option."""
    if rate is None:
        return default
    return None if math.isinf(rate) else int(rate)


def probability(text: str) -> float:
    """Return the value of an option such as --loss, which takes 0.01 or 1%."""
    try:
        return TypeAdapter[float](Probability).validate_python(text)
    except ValidationError as error:
        raise typer.BadParameter(f"{text}: {_why(error)}") from None


def several(option: str, texts: Sequence[str]) -> list[str]:
    """Return the values of an option that takes a list with commas and may be repeated.

    Raises:
        typer.BadParameter: If a value is empty.
    """
    found = [value.strip() for text in texts for value in text.split(",")]
    if "" in found:
        given = ", ".join(repr(text) for text in texts)
        raise typer.BadParameter(
            f"{given} has an empty value; give values with commas between them, or leave the option out",
            param_hint=option,
        )
    return found


def pairs(verb: str, option: str, texts: Sequence[str], form: str) -> dict[str, list[str]]:
    """Return the values of an option that takes NAME=VALUE,… and may be repeated.

    Raises:
        typer.Exit: If a text has another form; the message shows `form`.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise failure(verb, f"{option} {text}: write {form}", 2)
        found.setdefault(name, []).extend(several(option, [value]))
    return found


def vector_sizes(texts: Sequence[str]) -> list[int]:
    """Return the values of --sizes, such as `64 kB,1000 elements`, in bytes."""
    found = []
    for size in several("--sizes", texts):
        try:
            found.append(TypeAdapter[int](VectorSize).validate_python(size))
        except ValidationError as error:
            raise typer.BadParameter(f"{size}: {_why(error)}", param_hint="--sizes") from None
    return found


def _why(error: ValidationError) -> str:
    return error.errors()[0]["msg"].removeprefix("Value error, ")


def file_to_write(text: str) -> Path:
    """Return the path of a file to write. Path() forgets the slash at the end of the name of a folder.

    Raises:
        typer.BadParameter: If it names a folder.
    """
    if text.endswith("/") or Path(text).is_dir():
        raise typer.BadParameter(f"{text} is a folder; name a file, such as {Path(text) / 'NAME'}")
    return Path(text)


def creatable(folder: Path | None) -> Path | None:
    """Refuse a folder that cannot be written before a command begins, not when its results are there."""
    if folder is not None:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        try:
            TemporaryDirectory(dir=place).cleanup()
        except OSError as error:
            raise typer.BadParameter(f"{folder} cannot be written: {place}: {error.strerror}") from None
    return folder


def _file(name: str, metavar: str, text: str) -> Any:
    """Return an option that takes an existing file and makes its path absolute."""
    return typer.Option(name, metavar=metavar, exists=True, dir_okay=False, resolve_path=True, help=text)


Workers = Annotated[int, typer.Option(min=2, help="Number of workers, spread evenly over the leaves")]
Leaves = Annotated[int, typer.Option(min=1, help="Number of leaf switches, one for each rack")]
Spines = Annotated[int, typer.Option(min=0, help="Number of spine switches; 0 with a single leaf")]
Rate = Annotated[
    float | None,
    typer.Option(
        parser=_rate,
        metavar="RATE",
        help="Rate of every link, or unlimited; 100 Mb/s by default, 400 kb/s with BMv2",
    ),
]
Switch = Annotated[
    SwitchKind, typer.Option(help="Switch software: ours, or BMv2's simple_switch_grpc (FANIN_BMV2)")
]
ProgramCompiler = Annotated[Compiler, typer.Option(help="P4 compiler: ours, or p4c-bm2-ss (FANIN_P4C)")]
TopologyFile = Annotated[
    Path | None,
    _file(
        "--topology",
        "FILE.toml",
        "Network description (replaces --workers, --leaves, --spines, --rate, --offload)",
    ),
]
Program = Annotated[
    Path | None,
    _file("--program", "FILE.p4", "P4 program to run instead of p4src/fanin.p4"),
]
ControllerFile = Annotated[
    Path | None,
    _file(
        "--controller",
        "FILE.py",
        "Python file that plans the table entries of the switches (docs/how-to/own.md)",
    ),
]
WorkerFile = Annotated[
    Path | None,
    _file("--worker", "FILE.py", "Python file that creates the in-network workers (docs/how-to/own.md)"),
]
ProtocolName = Annotated[
    str | None,
    typer.Option("--protocol", metavar="NAME", help="Protocol that comes with fanin, or its folder"),
]
Offload = Annotated[bool, typer.Option(help="Send superframes of many UDP datagrams where the kernel can")]
Captures = Annotated[
    Path | None,
    typer.Option(
        "--pcap",
        file_okay=False,
        callback=creatable,
        help="Folder for a packet capture of each port, with superframes as they are",
    ),
]
SwitchName = Annotated[
    str,
    typer.Argument(
        help="Switch of a running network, such as leaf1; or one started by hand: its process id (see fanin ps), or "
        "HOST:PORT of its P4Runtime server",
        autocompletion=lambda: [
            *(name for network in running_networks() for name in network.switches),
            *(str(switch.process) for switch in own_switches()),
        ],
    ),
]
Network = Annotated[
    int | None,
    typer.Option("--network", help="Process id of the network to use, if several are running (see fanin ps)"),
]
ScenarioFile = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO.toml",
        help="Scenario file, or one that comes with fanin, such as lesson:loss ('lesson:' lists them)",
    ),
]
Changes = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE,…", help="Setting that overrides the file; may be repeated"),
]
MOST_CORES = 64  # that may share a network in virtual time
Results = Annotated[
    Path | None,
    typer.Option(file_okay=False, callback=creatable, help="Folder for the results; results/NAME by default"),
]
ResultsFolder = Annotated[
    Path, typer.Option("--results", file_okay=False, callback=creatable, help="Folder for the results")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        envvar="DASK_SCHEDULER_ADDRESS",
        help="Dask scheduler whose workers run the points in virtual time, such as tcp://10.0.0.1:8786",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of points in virtual time to run at once; one per core by default"),
]


PointsAsJson = Annotated[
    bool, typer.Option("--json", help="Print a line of JSON for each point, as in results.json")
]


def brought(**files: Path | None) -> list[str]:
    """Return options that name a user's file as changes of a scenario, under the keys of the same names."""
    return [f"{key}={json.dumps(str(path), ensure_ascii=False)}" for key, path in files.items() if path]


def refuse_with_topology(file: Path | None, context: typer.Context) -> None:
    """Refuse options that a topology file replaces.

    Raises:
        typer.BadParameter: If there is a topology file and one of these options.
    """
    for name in ("workers", "leaves", "spines", "rate", "offload"):
        source = context.get_parameter_source(name)
        if file and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(
                f"{file} sets this already; leave the option out", param_hint=f"--{name}"
            )


def hosts_per_leaf(workers: int, leaves: int) -> int:
    """Return how many workers attach to each leaf.

    Raises:
        typer.BadParameter: If that is not a whole number.
    """
    if workers % leaves:
        raise typer.BadParameter(
            f"{workers} workers cannot be spread evenly over {leaves} leaves", param_hint="--workers"
        )
    return workers // leaves
