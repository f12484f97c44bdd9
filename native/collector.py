"""The frequency at which Python looks for garbage in reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_seldom() -> None:
    """Let Python look for garbage after 50,000 new objects, not after 700.

    Imports, compilers and results are many objects that stay, and little garbage in cycles. With Python's own
    threshold, looking through them takes a sixth of a short command's time.
    """
    gc.set_threshold(50_000, 20, 100)


@contextmanager
def uncollected() -> Iterator[None]:
    """Do not look for garbage meanwhile. For code that makes many objects, and little garbage in cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
