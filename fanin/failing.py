"""How a verb fails: a line that says why, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer


def complain(verb: str, message: object) -> None:
    """Say what is wrong."""
    typer.echo(f"fanin {verb}: {message}", err=True)


def failure(verb: str, message: object, status: int = 1) -> typer.Exit:
    """Say what is wrong; to be raised."""
    complain(verb, message)
    return typer.Exit(status)


@contextmanager
def failing(verb: str, *errors: type[BaseException], status: int = 1) -> Iterator[None]:
    """These errors end the verb with what they say. KeyboardInterrupt, if among them: of what leaves nothing behind."""
    try:
        yield
    except errors as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        message = "interrupted; nothing is left behind" if interrupted else error
        raise failure(verb, message, status) from None
