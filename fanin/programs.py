"""Programs that a user gives to a verb."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer

from p4compiler import Diagnostic, compile_file


def device_config(program: Path, include_dirs: Iterable[Path]) -> bytes:
    """A program's BMv2 JSON: a file as it is, or compiled from P4_16 (.p4), its warnings shown.

    Raises:
        CompileError: the compiler refuses it.
        OSError: it cannot be read.
    """
    if program.suffix != ".p4":
        return program.read_bytes()
    compiled = compile_file(program, include_dirs=include_dirs)
    show_warnings(compiled.warnings)
    return compiled.device_config()


def show_warnings(warnings: Iterable[Diagnostic]) -> None:
    """Print a compiler's warnings to standard error."""
    for warning in warnings:
        typer.echo(warning, err=True)
