"""`fanin`: every verb of the command line."""

from __future__ import annotations

import os

import typer

from fanin.bench import bench
from fanin.clean import clean
from fanin.compile import compile_program
from fanin.demo import demo
from fanin.diff import diff
from fanin.doctor import doctor
from fanin.fuzz import fuzz
from fanin.link import link
from fanin.plot import plot
from fanin.run import run
from fanin.shell import execute, shell
from fanin.soak import soak
from fanin.stf import stf
from fanin.sweep import sweep
from fanin.trace import trace
from fanin.up import up
from fanin.validate import validate

app = typer.Typer(
    name="fanin",
    help="In-network aggregation emulator and P4 testbed.",
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


def main() -> None:
    """Entry point of the command."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"  # where Debian keeps tc and ethtool, away from ordinary users
    app()
