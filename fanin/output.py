"""Output of verbs. Text from outside is cleaned so that it cannot control the terminal."""

from __future__ import annotations

import typer

from fanin.native.text import printable


def say(text: object, *, err: bool = False, nl: bool = True) -> None:
    """Write `text` to standard output.

    Args:
        text: What to write; printable() cleans it.
        err: Write to standard error instead.
        nl: End the line.
    """
    typer.echo(printable(str(text)), err=err, nl=nl)
