"""Errors of verbs: a message on standard error and an exit status."""

from __future__ import annotations

import errno
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fanin.output import say

INTERRUPTED = 130  # the exit status after Ctrl-C, as in shells: 128 plus the number of SIGINT


def complain(verb: str, message: object) -> None:
    """Print an error message of a verb."""
    say(f"fanin {verb}: {message}", err=True)


def failure(verb: str, message: object, status: int = 1) -> typer.Exit:
    """Print an error message of a verb and return the exception to raise."""
    complain(verb, message)
    return typer.Exit(status)


@contextmanager
def failing(verb: str, *errors: type[BaseException], status: int = 1) -> Iterator[None]:
    """End the verb with a message and an exit status if one of the errors is raised.

    Args:
        verb: The name of the verb.
        errors: The errors that end it. Include KeyboardInterrupt only where an interruption leaves nothing behind.
        status: The exit status: 1 if something failed, 2 if the command line or a file is wrong.

    Raises:
        typer.Exit: If one of the errors is raised.
    """
    try:
        yield
    except errors as error:
        if isinstance(error, KeyboardInterrupt):
            raise failure(verb, "interrupted; nothing is left behind", INTERRUPTED) from None
        raise failure(verb, error, status) from None


@contextmanager
def ending() -> Iterator[None]:
    """End the verb without a message on Ctrl-C, which is the usual way to end it."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None


def memory_limit() -> int | None:
    """Return the limit of a process's address space in bytes (`ulimit -v`), or None without a limit."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def out_of_memory(error: BaseException) -> str | None:
    """Return a message if a lack of memory caused the error, or None.

    A limit of the address space causes a MemoryError, a library that is not mapped, or a thread that does not start.
    """
    seen: BaseException | None = error
    while seen is not None and not _is_of_memory(seen):
        seen = seen.__cause__ or seen.__context__
    if seen is None:
        return None
    limit = memory_limit()
    if limit is None:
        return "out of memory: end other programs, or use a smaller network or vector"
    return f"out of memory: processes are limited to {limit >> 20:,} MiB of addresses; to raise it: ulimit -v unlimited"


def _is_of_memory(error: BaseException) -> bool:
    match error:
        case MemoryError() | OSError(errno=errno.ENOMEM):
            return True
        case ImportError():
            return "failed to map segment" in str(error)
        case RuntimeError() | SystemError():  # SystemError: an extension did not check an allocation
            words = ("can't start new thread", "without setting an exception", "without exception set")
            return memory_limit() is not None and any(each in str(error) for each in words)
        case _:
            return False
