"""The standard output of a worker process, which its parent reads line by line."""

from __future__ import annotations

import os
from functools import cache
from typing import BinaryIO


@cache
def lines_out() -> BinaryIO:
    """Return the stream for such lines.

    From the first call on, everything else that the process prints goes to standard error, which is its log.
    """
    taken = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return taken


def write_line(document: bytes) -> None:
    """Write one line and flush it."""
    lines_out().write(document + b"\n")
    lines_out().flush()
