"""`fanin`: every verb of the command line."""

from __future__ import annotations

import os
from importlib.metadata import version as version_of
from typing import Annotated

import typer

from fanin.verbs.bench import bench
from fanin.verbs.clean import clean
from fanin.verbs.compile import compile_program
from fanin.verbs.demo import demo
from fanin.verbs.diff import diff
from fanin.verbs.doctor import doctor
from fanin.verbs.fuzz import fuzz
from fanin.verbs.link import link
from fanin.verbs.plot import plot
from fanin.verbs.run import run
from fanin.verbs.shell import execute, shell
from fanin.verbs.soak import soak
from fanin.verbs.stf import stf
from fanin.verbs.sweep import sweep
from fanin.verbs.trace import trace
from fanin.verbs.up import up
from fanin.verbs.validate import validate

app = typer.Typer(
    name="fanin",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo)
app.command("run")(run)
app.command("sweep")(sweep)
app.command("plot")(plot)
app.command("compile")(compile_program)
app.command("diff")(diff)
app.command("doctor")(doctor)
app.command("up")(up)
app.command("shell")(shell)
app.command("exec", context_settings={"ignore_unknown_options": True})(execute)
app.command("link")(link)
app.command("stf")(stf)
app.command("trace")(trace)
app.command("clean")(clean)
app.command("soak")(soak)
app.command("fuzz")(fuzz)
app.command("validate")(validate)
app.add_typer(bench, name="bench")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fanin {version_of('fanin')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """In-network aggregation emulator and P4 testbed."""


def main() -> None:
    """Entry point of the command."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # where Debian keeps tc and ethtool, away from ordinary users
    app()
