"""The standard output of a worker process, which whoever started it reads line by line."""

from __future__ import annotations

import os
from functools import cache
from typing import BinaryIO


@cache
def lines_out() -> BinaryIO:
    """Where such lines go. From the first call on, what is printed goes to standard error, the process's log."""
    taken = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return taken


def write_line(document: bytes) -> None:
    """Say one line."""
    lines_out().write(document + b"\n")
    lines_out().flush()
