"""How a verb fails: a line that says why, and an exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fanin.output import say

INTERRUPTED = 130  # the exit status after Ctrl-C, as shells have it: 128 and SIGINT's number


def complain(verb: str, message: object) -> None:
    """Say what is wrong."""
    say(f"fanin {verb}: {message}", err=True)


def failure(verb: str, message: object, status: int = 1) -> typer.Exit:
    """Say what is wrong; to be raised."""
    complain(verb, message)
    return typer.Exit(status)


@contextmanager
def failing(verb: str, *errors: type[BaseException], status: int = 1) -> Iterator[None]:
    """These errors end the verb with what they say and `status`: 1 is for what fails, 2 for what is asked wrongly.

    KeyboardInterrupt, if among them: of what leaves nothing behind.
    """
    try:
        yield
    except errors as error:
        if isinstance(error, KeyboardInterrupt):
            raise failure(verb, "interrupted; nothing is left behind", INTERRUPTED) from None
        raise failure(verb, error, status) from None


@contextmanager
def ending() -> Iterator[None]:
    """Ctrl-C is how the verb ends: nothing is said, the exit status tells it."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
