"""Programs of ours as processes that start at once, outside a sandbox, too: most tests of them need nothing else."""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from fanin.testbed import preloaded, sandbox

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_one_at_a_time = threading.Lock()


def hang_up(preloader: preloaded._Preloader) -> None:
    """So that the process that forks ends, which lasts as long as a network otherwise."""
    if preloader._asked is not None and preloader._process is not None:
        preloader._asked.close()
        preloader._process.wait()


atexit.register(hang_up, preloaded._preloader)


@contextmanager
def adopting() -> Iterator[None]:
    """Adopt processes that lose their parent while they are being started."""
    prctl = ctypes.CDLL(None).prctl
    with _one_at_a_time:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            yield
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0)


def start(argv: Sequence[str], **options: Any) -> preloaded.Process:
    """As preloaded.start() in a sandbox."""
    with adopting(), patch.object(sandbox, "inside", lambda: True):
        return preloaded.start(argv, **options)
