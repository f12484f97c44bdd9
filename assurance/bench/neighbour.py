"""Other work on the machine during a measurement: a process that keeps a core busy, alternating with rest.

python -m fanin.assurance.bench.neighbour KIND BYTES prints a line when it is ready, and works from then on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import TracebackType

import numpy as np

from fanin.assurance.bench.host import caches
from fanin.testbed import time_slices

NOTHING, LOOP, BOUND_LOOP, CACHE_WALK = "nothing", "loop", "bound-loop", "cache-walk"
KINDS = {
    NOTHING: "nothing else",
    LOOP: "a loop",
    BOUND_LOOP: "a loop held to a core",
    CACHE_WALK: "a walk over half of the cache",
}
_LINE = 64  # bytes; cache lines of all usual processors are so long, or twice as long
_SETTLE = 0.05  # seconds for the scheduler to place it on a core


class NeighbourError(RuntimeError):
    """The process cannot work as asked."""


class Neighbour:
    """A process of one of KINDS that works inside a `with` block."""

    def __init__(self, kind: str) -> None:
        argv = [sys.executable, "-m", "fanin.assurance.bench.neighbour", kind, str(_half_of_cache(kind))]
        # A session of its own: the kernel first divides cores among sessions (sched_autogroup), and other work on
        # a machine is in another one.
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
        assert self._process.stdout
        if not self._process.stdout.readline():
            raise NeighbourError(f"{KINDS[kind]} could not be started: status {self._process.wait()}")
        self._process.send_signal(signal.SIGSTOP)

    def __enter__(self) -> None:
        """Let it work."""
        self._process.send_signal(signal.SIGCONT)
        time.sleep(_SETTLE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it rest."""
        self._process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def _half_of_cache(kind: str) -> int:
    """Return the number of bytes that it walks over.

    Raises:
        NeighbourError: The kernel does not tell the size of the largest cache.
    """
    if kind != CACHE_WALK:
        return 0
    if not (found := caches()):
        raise NeighbourError(f"the kernel does not say how large the caches are: leave out {kind}")
    return max(found.values()) // 2


def neighbours(kinds: Sequence[str], until: ExitStack) -> Mapping[str, AbstractContextManager[None]]:
    """Return for each kind what to enter while it works. All of them end with `until`.

    Raises:
        NeighbourError: See Neighbour.
    """
    found: dict[str, AbstractContextManager[None]] = {}
    for kind in kinds:
        found[kind] = nullcontext()
        if kind != NOTHING:
            found[kind] = neighbour = Neighbour(kind)
            until.callback(neighbour.close)
    return found


def main(kind: str, size: int) -> None:
    """Work indefinitely."""
    time_slices.restore()
    if kind == BOUND_LOOP:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    lines = np.zeros((size // _LINE, _LINE), np.uint8)[:, 0]
    print("ready", flush=True)
    while True:
        lines += 1


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
