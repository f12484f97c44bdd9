"""Leases as after the ledger was deleted: an id comes again with lower chunk numbers than switches hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fanin.controller.jobs.ledger import CHUNKS, GRANT, Identity, NumberSpace


class DescendingNumbers(NumberSpace):
    """A number space that hands out the chunk numbers of each id from the last one down.

    Args:
        last_lease: the id of the newest grant.
        last_chunks: of each id, the highest chunk number that has not been handed out; -1: none is left.
    """

    def __init__(self, last_lease: int, last_chunks: Sequence[int]) -> None:
        super().__init__(last_lease, [_mirrored(chunk) for chunk in last_chunks])

    def take(self, chunks: int = GRANT, in_force: Collection[int] = ()) -> Identity:
        """See NumberSpace."""
        taken = super().take(chunks, in_force)
        return Identity(taken.lease, _mirrored(taken.last_chunk), _mirrored(taken.first_chunk))


def _mirrored(chunk: int) -> int:
    return CHUNKS - 1 - chunk
