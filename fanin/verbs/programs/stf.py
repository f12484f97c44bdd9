"""`fanin stf`: an STF test (p4c's simple test framework) on our switch."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from fanin.native.files import read_bytes
from fanin.native.text import counted
from fanin.output import say
from fanin.programs import Define, Include, device_config


def stf(
    program: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="BMv2 JSON, or P4_16 source to compile")
    ],
    test: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="STF test: packets in, table entries, packets out"),
    ],
    include: Include = None,
    define: Define = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Show the path of each packet that went wrong through the program")
    ] = False,
) -> None:
    """Run an STF test on a program.

    The exit status is 0 if every packet came out as expected, 1 if not, and 2 if the test cannot run. With --trace you
    see why: the path of each packet that went wrong, with the lines of the program.

    Examples:
        fanin stf program.p4 program.stf
        fanin stf p4src/fanin.p4 docs/tutorials/tutorial/ttl.stf
    """
    # Imported here to keep --help fast.
    from fanin.native.toolchain import ToolchainError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.stf.run import run_stf
    from fanin.p4switch.stf.syntax import StfError
    from fanin.p4switch.trace.text import as_text

    if test.suffix == ".p4" and program.suffix != ".p4":
        say(f"{test}: is a program; write fanin stf {test} {program}", err=True)
        raise typer.Exit(2)
    try:
        config = device_config(program, include, define)
        runner = run_stf(config, read_bytes(test).decode(), trace=trace)
    except (CompileError, ProgramError, ToolchainError) as error:
        say(error, err=True)
        raise typer.Exit(2) from None
    except (StfError, OSError, UnicodeDecodeError) as error:
        say(f"{test}: {error}", err=True)
        raise typer.Exit(2) from None
    for text in (*runner.notes, *runner.differences):
        say(text)
    if not runner.differences:
        say(f"PASS {test}")
        return
    for line in runner.wrong if trace else ():
        say(f"\nThe packet of line {line} in the program:")
        for found in runner.traces[line]:
            say(indent(as_text(found, verbose=True), "  "))
    more = (
        f"; --trace shows the path of the packet of line {runner.wrong[0]}"
        if runner.wrong and not trace
        else ""
    )
    say(f"FAIL {test}: {counted(len(runner.differences), 'difference')}{more}")
    raise typer.Exit(1)
