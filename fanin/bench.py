"""`fanin bench`: how fast things are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from experiments.bench_virtual import Point

bench = typer.Typer(help="Measure how fast things are on this machine.", no_args_is_help=True)


@bench.callback()
def benchmarks() -> None:
    """Measure how fast things are on this machine."""


@bench.command("virtual")
def virtual(
    most: Annotated[int, typer.Option(help="leave out points with more workers")] = 1024,
    results: Annotated[Path, typer.Option(help="where the results go")] = Path("results/bench"),
) -> None:
    """All-reduce 4 MiB in virtual time with 8 to 1,024 workers on links of 100 Gb/s, in racks of 32."""
    # Not above: it takes a second, and every verb imports this module.
    from experiments.bench_virtual import WORKERS, write
    from experiments.bench_virtual import bench as bench_virtual
    from fanin.progress import console

    def show(point: Point) -> None:
        console.print(
            f"{point.workers:5} workers: {point.packet_hops:9,} packet-hops in {point.seconds:6.1f} s, "
            f"{point.packet_hops_per_second:9,.0f}/s ({point.packet_hops_per_processor_second:,.0f} per second "
            f"of processor); {point.peak_bytes / 2**30:.2f} GiB; {point.virtual_seconds * 1e6:.0f} µs of virtual time"
            + ("" if point.exact else "; SUMS ARE WRONG")
        )

    points = bench_virtual([count for count in WORKERS if count <= most], show)
    write(points, results)
    console.print(f"{results}/virtual.json")
    if not all(point.exact for point in points):
        raise typer.Exit(1)
