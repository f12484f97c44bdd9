"""How a verb fails: a line that says why, and an exit status."""

from __future__ import annotations

import errno
import resource
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


def memory_limit() -> int | None:
    """Return how many bytes of addresses a process may use (`ulimit -v`); None if there is no limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def out_of_memory(error: BaseException) -> str | None:
    """Return a message for an error that a lack of memory has caused, None for any other.

    A limit of addresses shows as a MemoryError, as a library that is not mapped, or as a thread that does not start.
    """
    seen: BaseException | None = error
    while seen is not None and not _is_of_memory(seen):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    limit = memory_limit()
    if limit is None:
        return "out of memory: end other programs, or choose a smaller network or vector"
    return f"out of memory: a process may use {limit >> 20:,} MiB of addresses here; to raise it: ulimit -v unlimited"


def _is_of_memory(error: BaseException) -> bool:
    match error:
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return True
        case ImportError():
            return "failed to map segment" in str(error)
        case (
            RuntimeError() | SystemError()
        ):  # the second is of extensions that have not checked an allocation
            words = ("can't start new thread", "returned NULL without setting an exception")
            return memory_limit() is not None and any(each in str(error) for each in words)
        case _:
            return False
