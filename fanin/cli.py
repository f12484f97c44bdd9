"""`fanin`: every verb of the command line."""

from __future__ import annotations

import typer

from fanin.compile import compile_program
from fanin.demo import demo

app = typer.Typer(
    name="fanin",
    help="In-network aggregation emulator and P4 testbed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)
app.command("compile")(compile_program)


def main() -> None:
    """Entry point of the command."""
    app()
