"""P4 programs on the command line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fanin.native.files import read_bytes
from fanin.output import say

if TYPE_CHECKING:
    from fanin.p4compiler import Diagnostic

Include = Annotated[
    list[Path] | None, typer.Option("-I", help="Folder to search for #include; may be repeated")
]
Define = Annotated[
    list[str] | None,
    typer.Option("-D", help="Macro for the preprocessor: NAME or NAME=VALUE; may be repeated"),
]


def macros(defined: list[str] | None) -> dict[str, str]:
    """Return the values of -D by name."""
    return {name: value or "1" for name, _, value in (item.partition("=") for item in defined or ())}


def device_config(program: Path, include: Include, define: Define) -> bytes:
    """Return the BMv2 JSON of a program.

    Args:
        program: A BMv2 JSON file, or P4_16 source (.p4), which is compiled. Warnings go to standard error.
        include: Folders to search for #include.
        define: Macros for the preprocessor.

    Raises:
        CompileError: If the compiler refuses the program.
        ProgramError: If the file cannot be read or is not BMv2 JSON; the message names the file.
    """
    # Imported here to keep --help fast.
    from fanin.p4compiler import compile_once
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.reader import read_program

    try:
        if program.suffix != ".p4":
            config = read_bytes(program)
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
