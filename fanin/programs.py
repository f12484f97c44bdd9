"""Programs that a user gives to a verb."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.output import say

if TYPE_CHECKING:
    from fanin.p4compiler import Diagnostic

Include = Annotated[list[Path] | None, typer.Option("-I", help="another folder for #include")]
Define = Annotated[list[str] | None, typer.Option("-D", help="NAME or NAME=VALUE for the preprocessor")]


def macros(defined: list[str] | None) -> dict[str, str]:
    """The values of -D by name."""
    return {name: value or "1" for name, _, value in (item.partition("=") for item in defined or ())}


def device_config(program: Path, include: Include, define: Define) -> bytes:
    """A program's BMv2 JSON: a file as it is, or compiled from P4_16 (.p4), its warnings shown.

    Raises:
        CompileError: the compiler refuses it.
        ProgramError: it cannot be read, or is not BMv2 JSON; with the file's name.
    """
    # Not above: they take a second, for which --help should not wait.
    from fanin.p4compiler import compile_once
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.bmv2json.reader import read_program

    try:
        if program.suffix != ".p4":
            config = program.read_bytes()
            read_program(config)
            return config
        compiled = compile_once(program, include_dirs=include or (), defines=macros(define))
    except OSError as error:
        raise ProgramError(f"{program}: cannot be read: {error.strerror}") from None
    except ProgramError as error:
        raise ProgramError(f"{program}: {error}") from None
    show_warnings(compiled.warnings)
    return compiled.device_config()


def show_warnings(warnings: Iterable[Diagnostic]) -> None:
    """Print a compiler's warnings to standard error."""
    for warning in warnings:
        say(warning, err=True)
