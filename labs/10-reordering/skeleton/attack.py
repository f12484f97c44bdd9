"""An order of arrivals that makes the switch of lab 7 compute a wrong sum."""


def arrivals() -> list[tuple[int, int]]:
    """Return the packets in the order in which they arrive at the switch: the rank of the worker, and the chunk.

    There are two workers, of ranks 0 and 1, and four slots. A pair that comes again is a copy.
    """
    return [(0, 0), (1, 0)]  # TODO 1: at most eight packets, one of them a late copy
