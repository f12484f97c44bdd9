"""`fanin shims`: the commands of p4c and BMv2, with fanin behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.options import creatable
from fanin.output import say


def shims(
    folder: Annotated[
        Path,
        typer.Argument(
            file_okay=False, callback=creatable, help="Folder for the commands, for example ~/p4-commands"
        ),
    ],
) -> None:
    """Write p4c, simple_switch and other commands of courses.

    The commands are p4c, p4c-bm2-ss, simple_switch, simple_switch_grpc and simple_switch_CLI. They run fanin's compiler
    and switch, so that a course written for p4c and BMv2 works without them. Put the folder first in PATH to use them.

    Examples:
        fanin shims ~/p4-commands
        fanin shims course/bin
    """
    from fanin.bmv2_commands.install import ForeignCommandError, install

    with failing("shims", ForeignCommandError):
        paths = list(install(folder.expanduser()))
    for path in paths:
        say(f"wrote {path}")
    say(
        f"\nTo use them, put the folder first in PATH:\n\n  export PATH={folder.expanduser().resolve()}:$PATH"
    )
