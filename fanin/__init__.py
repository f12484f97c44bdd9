"""In-network aggregation on one computer: `init()` for programs that `fanin launch` starts, and the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from fanin.workers.communicator import Communicator

__all__ = ["init"]

_communicator: Communicator | None = None


def init(
    *,
    timeout: float = 120.0,
    in_network: Literal["preferred", "required"] = "preferred",
    min_workers: int | None = None,
    non_finite: Literal["refuse", "propagate"] = "refuse",
) -> Communicator:
    """This process's end of the job that `fanin launch` has started; the same one each time, closed at exit.

    timeout: seconds after which the others are no longer waited for, here and in each operation in which nothing moves.
    in_network: where the job gets no lease, or loses it, it goes on by ring; "required": it waits for one, and fails.
    min_workers: as long as so many are left, the job goes on without workers that have ended
    (docs/how-to/faults.md); None: as `fanin launch --min-workers` says, or else it fails when one ends.
    non_finite: what becomes of NaN, infinities and magnitudes of 2^127 and more in sums of float32, which the switches
    cannot add up: "refuse": ValueError. "propagate": they come out where they went in, as of a sum of float32; blocks
    of 64 or 256 values in which there is one are summed again, round the ring.

    Raises:
        ValueError: both min_workers and in_network="required".
        workers.JoinError: this process was not started by `fanin launch`, or others do not come.
    """
    global _communicator
    if _communicator is None:
        # Not above: the command line, which begins here as well, starts without numpy.
        import atexit
        import os

        from fanin.workers.communicator import Communicator
        from fanin.workers.job.elastic import join_elastic
        from fanin.workers.job.environment import MIN_WORKERS
        from fanin.workers.job.membership import join, join_or_ring, number_of_environment
        from fanin.workers.reducer import Membership

        size = os.environ.get("WORLD_SIZE")
        workers = None if size is None else int(size)
        least = number_of_environment(MIN_WORKERS, "workers") if min_workers is None else min_workers
        if least is not None and in_network == "required":
            raise ValueError(
                "a job with min_workers goes on by ring if need be: leave in_network='required' out"
            )
        checks: Literal["raise", "propagate"] = "propagate" if non_finite == "propagate" else "raise"
        if least is not None:
            place: Membership = join_elastic(workers, least, timeout, non_finite=checks)
        elif in_network == "required":
            place = join(workers, timeout=timeout, give_up=timeout, non_finite=checks)
        else:
            place = join_or_ring(workers, timeout, non_finite=checks)
        _communicator = Communicator(place, timeout, in_network, non_finite)
        atexit.register(_communicator.close)
    return _communicator


def register_with_torch() -> None:
    """Make `torch.distributed.init_process_group("fanin")` known; PyTorch calls it when it is imported."""
    import importlib

    # Not a function of that module: it may be what is importing PyTorch just now.
    importlib.import_module("fanin.torch")
