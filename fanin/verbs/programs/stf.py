"""`fanin stf`: an STF test (p4c's simple test framework) on our switch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.native.files import read_bytes
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
) -> None:
    """Run an STF test on a program.

    The exit status is 0 if every packet came out as expected, 1 if not, and 2 if the test cannot run.

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

    try:
        config = device_config(program, include, define)
        runner = run_stf(config, read_bytes(test).decode())
    except (CompileError, ProgramError, ToolchainError) as error:
        say(error, err=True)
        raise typer.Exit(2) from None
    except (StfError, OSError, UnicodeDecodeError) as error:
        say(f"{test}: {error}", err=True)
        raise typer.Exit(2) from None
    for line in (*runner.notes, *runner.differences):
        say(line)
    if runner.differences:
        say(f"FAIL {test}: {len(runner.differences)} differences")
        raise typer.Exit(1)
    say(f"PASS {test}")
