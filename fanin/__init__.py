"""In-network aggregation on one computer: `init()` for programs that `fanin launch` starts, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from workers.communicator import Communicator

__all__ = ["init"]

_communicator: Communicator | None = None


def init(
    *, timeout: float = 120.0, in_network: Literal["preferred", "required"] = "preferred"
) -> Communicator:
    """This process's end of the job that `fanin launch` has started; the same one each time, closed at exit.

    timeout: seconds after which the others are no longer waited for, here and in each operation in which nothing moves.
    in_network: where the job gets no lease, or loses it, it goes on by ring; "required": it waits for one, and fails.

    Raises:
        workers.JoinError: this process was not started by `fanin launch`, or others do not come.
    """
    global _communicator
    if _communicator is None:
        # Not above: the command line, which begins here as well, starts without numpy.
        import atexit
        import os

        from workers.communicator import Communicator, Place
        from workers.membership import join, join_or_ring

        size = os.environ.get("WORLD_SIZE")
        workers = None if size is None else int(size)
        if in_network == "required":
            place: Place = join(workers, timeout=timeout, give_up=timeout)
        else:
            place = join_or_ring(workers, timeout)
        _communicator = Communicator(place, timeout)
        atexit.register(_communicator.close)
    return _communicator


def register_with_torch() -> None:
    """Make `torch.distributed.init_process_group("fanin")` known; PyTorch calls it when it is imported."""
    import importlib

    # Not a function of that module: it may be what is importing PyTorch just now.
    importlib.import_module("fanin.torch")
