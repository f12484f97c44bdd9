"""Programs of ours as processes that start at once, outside a sandbox, too: most tests of them need nothing else."""

from __future__ import annotations

import atexit
import ctypes
import threading
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

from topologies.live import preloaded, sandbox

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_one_at_a_time = threading.Lock()


@atexit.register
def _hang_up() -> None:
    """So that the process that forks ends, which lasts as long as a network otherwise."""
    if preloaded._preloader._asked is not None and preloaded._preloader._process is not None:
        preloaded._preloader._asked.close()
        preloaded._preloader._process.wait()


def start(argv: Sequence[str], **options: Any) -> preloaded.Process:
    """As preloaded.start() in a sandbox: what has lost its parent while it is being started becomes our child."""
    prctl = ctypes.CDLL(None).prctl
    with _one_at_a_time, patch.object(sandbox, "inside", lambda: True):
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            return preloaded.start(argv, **options)
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0)
