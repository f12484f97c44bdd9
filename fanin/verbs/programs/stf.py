"""`fanin stf`: a STF test (p4c's simple test format) on our switch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.output import say
from fanin.programs import Define, Include, device_config


def stf(
    program: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="BMv2 JSON, or P4_16 source to be compiled")
    ],
    test: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="the test: packets in, table entries, packets out"),
    ],
    include: Include = None,
    define: Define = None,
) -> None:
    """Run a STF test; the exit status is 0 if every packet came out as expected, 1 if not, 2 if it cannot be run."""
    # Not above: they take a second, for which --help should not wait.
    from fanin.native.toolchain import ToolchainError
    from fanin.p4compiler import CompileError
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.stf.run import run_stf
    from fanin.p4switch.stf.syntax import StfError

    try:
        config = device_config(program, include, define)
        runner = run_stf(config, test.read_text())
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
