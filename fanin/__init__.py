"""In-network aggregation on one computer: `init()` for programs that `fanin launch` starts, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.communicator import Communicator

__all__ = ["init"]

_communicator: Communicator | None = None


def init(*, timeout: float = 120.0) -> Communicator:
    """This process's end of the job that `fanin launch` has started; the same one each time, closed at exit.

    timeout: seconds after which the others are no longer waited for, here and in each operation in which nothing moves.

    Raises:
        workers.JoinError: this process was not started by `fanin launch`, or others do not come.
    """
    global _communicator
    if _communicator is None:
        # Not above: the command line, which begins here as well, starts without numpy.
        import atexit
        import os

        from workers.communicator import Communicator
        from workers.membership import join

        size = os.environ.get("WORLD_SIZE")
        member = join(None if size is None else int(size), timeout=timeout, give_up=timeout)
        _communicator = Communicator(member, timeout)
        atexit.register(_communicator.close)
    return _communicator
