"""In-network aggregation on one computer.

`init()` serves the programs that `fanin launch` starts, `run()` runs a scenario. Names are imported when they are first
used: the command line begins here as well, and starts without numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from fanin.experiments.notebook import run
    from fanin.workers.collective import CollectiveError
    from fanin.workers.communicator import Communicator
    from fanin.workers.job.calls import AbortedError
    from fanin.workers.job.membership import JoinError
    from fanin.workers.values.compression import ErrorFeedback, Rounded, TopK

__all__ = [
    "AbortedError",
    "CollectiveError",
    "ErrorFeedback",
    "JoinError",
    "Rounded",
    "TopK",
    "init",
    "run",
]

_communicator: Communicator | None = None


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'fanin' has no attribute {name!r}")
    return getattr(
        import_module("fanin.experiments.notebook" if name == "run" else "fanin.workers.api"), name
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def init(
    *,
    timeout: float = 120.0,
    in_network: Literal["preferred", "required"] = "preferred",
    min_workers: int | None = None,
    non_finite: Literal["refuse", "propagate"] = "refuse",
    deterministic: bool = False,
    half_bits: Literal[16, 32] = 32,
    slot_share: int | None = None,
) -> Communicator:
    """Join the job that `fanin launch` started, and return its communicator.

    Calling it again returns the same communicator. It is closed when the process exits.

    Args:
        timeout: Seconds to wait for the other workers, both here and in every operation that makes no progress.
        in_network: "preferred" falls back to the ring when the job has no lease or loses it; "required" waits for a
            lease and fails without one.
        min_workers: Continue without workers that have failed as long as this many remain (docs/how-to/faults.md).
            None uses the value of `fanin launch --min-workers`; without either, the job fails with its first worker.
        non_finite: Treatment of NaN, infinities and magnitudes of 2^127 and more in sums of float32, which the switches
            cannot add. "refuse" raises ValueError. "propagate" returns them in the same elements of the sum, as
            a sum of float32 on one machine would. A block of 64 or 256 values with one of them is summed a second time,
            using the ring.
        deterministic: Whether each sum in the network depends on nothing but its values. If not, the bits of a sum can
            depend on those before it, within the bound of its precision, and a run that continues from a checkpoint
            gets other last bits. Costs a round trip more for each sum of a vector that fits into the window.
        half_bits: Bits of the integers as which float16 travels in the network, and PyTorch's bfloat16. 16 halves the
            bytes. It is used as long as it adds no larger error than the rounding of the result to the type may: with
            up to 4 workers for float16, and 32 for bfloat16. More workers use 32 bits.
        slot_share: The job gets at most 1/slot_share of the slots that are free at its switches, which leaves some for
            other jobs, or 32 slots if that is more. None: as many as its links need. The number of slots that
            `fanin launch --slots` sets has priority.

    Returns:
        The communicator of this process, with its rank and the size of the job.

    Raises:
        ValueError: If half_bits is another number; if min_workers is given together with in_network="required", or with
            several workers on a host; or if WORLD_SIZE is not a multiple of LOCAL_WORLD_SIZE.
        JoinError: If the process was not started by `fanin launch`, or other workers do not join in time.
    """
    global _communicator
    if _communicator is None:
        import atexit
        import os

        from fanin.workers.communicator import Communicator
        from fanin.workers.job.calls import shorten_tracebacks
        from fanin.workers.job.elastic import join_elastic
        from fanin.workers.job.environment import JOB, MIN_WORKERS
        from fanin.workers.job.local_ranks import join_local, place_on_host
        from fanin.workers.job.membership import join, join_or_ring, number_of_environment
        from fanin.workers.reducer import Membership

        if half_bits not in (16, 32):
            raise ValueError(f"half_bits must be 16 or 32, not {half_bits!r}")
        size = os.environ.get("WORLD_SIZE")
        workers = None if size is None else int(size)
        least = number_of_environment(MIN_WORKERS, "workers") if min_workers is None else min_workers
        if least is not None and in_network == "required":
            raise ValueError(
                "a job with min_workers falls back to the ring when it loses its lease: leave in_network='required' out"
            )
        settings: dict[str, Any] = {
            "non_finite": "propagate" if non_finite == "propagate" else "raise",
            "deterministic": deterministic,
        }
        local, per_host = place_on_host(workers)
        if least is not None and per_host > 1:
            raise ValueError(
                "a job with min_workers has one worker on each host: leave out min_workers, or --per-host"
            )
        if workers is not None and per_host > 1:
            ring = in_network != "required"
            place: Membership = join_local(
                workers, local, per_host, timeout, ring=ring, slot_share=slot_share, **settings
            )
        elif least is not None:
            place = join_elastic(workers, least, timeout, slot_share=slot_share, **settings)
        elif in_network == "required":
            place = join(workers, slot_share=slot_share, timeout=timeout, give_up=timeout, **settings)
        else:
            place = join_or_ring(workers, timeout, slot_share=slot_share, **settings)
        job = os.environ.get(JOB)
        _communicator = Communicator(place, timeout, in_network, non_finite, half_bits, job, settings)
        atexit.register(_communicator.close)
        shorten_tracebacks(_communicator.calls)
    return _communicator


def register_with_torch() -> None:
    """Register fanin as a backend of torch.distributed; PyTorch calls this when it is imported."""
    # Imported by its name rather than its function called: fanin.torch may be what is importing PyTorch just now.
    import_module("fanin.torch")
