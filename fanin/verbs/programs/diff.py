"""`fanin diff`: one program, two compilers, two switches."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fanin.cli_errors import failing, failure
from fanin.native.text import counted
from fanin.output import say
from fanin.testbed.sandbox import SandboxError, enter

if TYPE_CHECKING:
    from fanin.assurance.differential.compare import Verdict


def diff(
    program: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="P4_16 source for the v1model architecture")
    ],
    packets: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Packet capture to send instead of random packets"),
    ] = None,
    port: Annotated[int, typer.Option(help="Port on which the packets of a capture arrive")] = 1,
    random_packets: Annotated[int, typer.Option("--random", help="Number of random packets", min=1)] = 500,
    entries: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Table entries and multicast groups (JSON) instead of random ones",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random packets and entries")] = 1,
    shown: Annotated[
        int, typer.Option("--show", min=0, help="Number of differences to print for each pair")
    ] = 10,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each pair, with all differences")
    ] = False,
) -> None:
    """Compare compilers and switches on one program.

    The program is compiled with p4c and with our compiler, and runs on BMv2 and on our switch. The four pairs are
    compared by accepted entries, packets out, their ports, and counters; the first packet that differs is traced. The
    exit status is 1 if a pair differs or fails, and 2 if fewer than two pairs can run. Missing tools are listed; set
    FANIN_BMV2 and FANIN_P4C if they are not on PATH.

    Examples:
        fanin diff PROGRAM.p4
        fanin diff PROGRAM.p4 --random 5000 --seed 7
    """
    with failing("diff", SandboxError, status=2):
        enter()  # no other process uses BMv2's loopback ports there

    from fanin.assurance.differential.compare import PAIRS, compare, compile_both
    from fanin.assurance.differential.packets import PacketSource, read_packets
    from fanin.controller.entry_files import random_entries, read_entries
    from fanin.experiments.scenario.compilers import CompiledProgram
    from fanin.experiments.scenario.tools import ToolMissingError
    from fanin.programs import show_warnings
    from fanin.progress import Steps
    from fanin.table import print_records

    compiled = compile_both(program)
    for made in compiled.values():
        if isinstance(made, CompiledProgram):
            show_warnings(made.warnings)
    usable = next((made for made in compiled.values() if isinstance(made, CompiledProgram)), None)
    if usable is None:
        say("\n".join(str(said) for said in compiled.values()), err=True)
        raise typer.Exit(2)
    rng = random.Random(seed)
    with failing("diff", ValueError, OSError, status=2):
        held = read_entries(entries) if entries else random_entries(usable.p4info, rng)
        if packets:
            sent = read_packets(packets, port)
        else:
            source = PacketSource(json.loads(usable.device_config), held, rng)
            sent = [source.packet() for _ in range(random_packets)]

    say(
        f"{counted(len(held.entries), 'table entry', 'table entries')}, "
        f"{counted(len(held.groups), 'multicast group')}, {counted(len(sent), 'packet')}",
        err=as_json,
    )
    verdicts = []
    with Steps("pairs", len(PAIRS), shown=not as_json) as progress:
        for verdict in compare(compiled, held, sent):
            verdicts.append(verdict)
            progress.advance()
            if as_json:
                print_records([_record(verdict)])
            else:
                show(verdict, shown)
    failed = [v for v in verdicts if v.cannot and not isinstance(v.cannot, ToolMissingError)]
    if failed or any(verdict.differences for verdict in verdicts):
        raise typer.Exit(1)
    if sum(verdict.outcome is not None for verdict in verdicts) < 2:
        raise failure("diff", "nothing was compared: fewer than two pairs can run here", 2)


def _record(verdict: Verdict) -> dict[str, Any]:
    outcome = verdict.outcome
    return {
        "compiler": verdict.pair.compiler,
        "switch": verdict.pair.engine,
        "cannot_run": verdict.cannot and str(verdict.cannot),
        "packets_out": outcome and sum(map(len, outcome.outputs)),
        "counters": outcome and len(outcome.counts),
        "refused_entries": outcome and len(outcome.refused),
        "differences": [
            {
                "kind": found.kind.name.lower(),
                "what": found.what,
                "reference": found.reference,
                "other": found.other,
                "reference_varies": found.undefined,
            }
            for found in verdict.differences
        ],
    }


def show(verdict: Verdict, most: int) -> None:
    """Print a line for a pair, followed by at most `most` of its differences."""
    if verdict.outcome is None:
        say(f"{verdict.pair}: cannot run: {verdict.cannot}")
        return
    if not verdict.differences:
        outputs = sum(map(len, verdict.outcome.outputs))
        refused = len(verdict.outcome.refused)
        say(
            f"{verdict.pair}: {counted(outputs, 'packet')} out, "
            f"{counted(len(verdict.outcome.counts), 'counter')} counted"
            + (f", {counted(refused, 'entry', 'entries')} refused" if refused else "")
        )
        return
    kinds = Counter(found.kind for found in verdict.differences)
    counts = ", ".join(f"{kind.name.lower()}: {kinds[kind]}" for kind in sorted(kinds))
    say(f"{verdict.pair}: DIFFERS ({counts})")
    for found in verdict.differences[:most]:
        say(f"  {found.what}")
        varies = " (varies between runs)" if found.undefined else ""
        for name, text in ((f"the reference{varies}", found.reference), (str(verdict.pair), found.other)):
            say(indent(f"{name}: {text}", "    "))
    if (hidden := len(verdict.differences) - most) > 0:
        say(f"  and {hidden} more; --show {len(verdict.differences)} prints all")
    if undefined := sum(found.undefined for found in verdict.differences):
        say(
            f"  In {undefined} of these the reference varies between runs. The program reads the clock, a random"
            "\n  number, or fields of an invalid header, where BMv2 keeps values of earlier packets. Or it uses a"
            "\n  register in ingress and egress, which BMv2 runs at the same time."
        )
    for trace in verdict.traces:
        say(trace)
