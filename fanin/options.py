"""Options that several verbs have: the network, what its switches are, and which of those that are up is meant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from experiments.scenario.tools import Compiler, Engine

Workers = Annotated[int, typer.Option(min=2, help="workers, spread evenly over the leaves")]
Leaves = Annotated[int, typer.Option(min=1, help="leaf switches, one for each rack")]
Spines = Annotated[int, typer.Option(min=0, help="spine switches; 0 with a single leaf")]
Rate = Annotated[float | None, typer.Option(help="of every link, in Mb/s", show_default="100; with BMv2 0.4")]
Switch = Annotated[
    Engine, typer.Option(help="what runs as a switch: ours, or BMv2's simple_switch_grpc (FANIN_BMV2)")
]
ProgramCompiler = Annotated[
    Compiler, typer.Option(help="what compiles the P4 program: ours, or p4c-bm2-ss (FANIN_P4C)")
]
Offload = Annotated[
    bool, typer.Option(help="many UDP datagrams in a frame, where the kernel can; sums are the same without")
]
Captures = Annotated[
    Path | None,
    typer.Option("--pcap", help="a folder for a capture of each port; superframes stay whole in it"),
]
Run = Annotated[
    int | None,
    typer.Option(help="process id of the fanin that runs the network, if there are several (fanin ps)"),
]


def hosts_per_leaf(workers: int, leaves: int) -> int:
    """How many workers each leaf has; typer.BadParameter if that is not a whole number."""
    if workers % leaves:
        raise typer.BadParameter(
            f"{workers} workers do not spread evenly over {leaves} leaves", param_hint="--workers"
        )
    return workers // leaves
