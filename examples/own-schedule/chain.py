"""An all-reduce along a chain: the sum passes from the last rank to rank 0, and back."""

from fanin.workers.host_based.pieces import Plan, Schedule, cut


def schedule(rank: int, workers: int, size: int, chunk: int) -> Schedule:
    """Return what a rank sends and receives to sum `size` elements, in pieces of up to `chunk` elements."""
    plan = Plan()
    for i, span in enumerate(cut(0, size, chunk)):
        latest = None  # what the next piece has to wait for
        if rank + 1 < workers:
            plan.receive(rank + 1, (i,), span, reduce=True)
            latest = rank + 1, (i,)
        if rank > 0:
            plan.send(rank - 1, (i,), span, latest)
            plan.receive(rank - 1, (i,), span, latest, reduce=False)
            latest = rank - 1, (i,)
        if rank + 1 < workers:
            plan.send(rank + 1, (i,), span, latest)
    return plan.schedule()
