"""A schedule as plain data: what a rank sends to whom, and what it must receive first.

Between any two ranks a stream of pieces runs in each direction. Pieces are ranges of the array, in an order that both
ends know. A piece that arrives is added to the array or replaces a part of it. Pieces are small, so that a long array
passes through many ranks at once.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

CHUNK = 4 << 10  # elements, 16 KiB: the default size of the largest piece


class Piece(NamedTuple):
    """Elements `start` to `stop` - 1 of the array.

    Attributes:
        start: First element.
        stop: One more than the last element.
        after: The rank whose pieces this one waits for; -1 if it waits for none.
        needed: How many pieces from `after` must have been processed before this piece may be sent, or processed on
            arrival.
        reduce: Whether the piece is added to the array on arrival. If not, it replaces that part of the array.
    """

    start: int
    stop: int
    after: int = -1
    needed: int = 0
    reduce: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """One rank's part in one all-reduce: by peer, the pieces of the stream to it and of the one from it.

    Each iterable is read once, and only as far as the all-reduce has come.
    """

    sends: Mapping[int, Iterable[Piece]]
    receives: Mapping[int, Iterable[Piece]]


def bounds(size: int, parts: int) -> list[int]:
    """Return where each of `parts` parts of an array begins, of sizes as equal as possible, and the end of the last."""
    return [size * part // parts for part in range(parts + 1)]


def cut(start: int, stop: int, chunk: int) -> Iterator[tuple[int, int]]:
    """Cut a range into pieces."""
    return ((first, min(first + chunk, stop)) for first in range(start, stop, chunk))


# Orders the pieces of a stream; both of its ends use the same names.
Name = tuple[int, ...]


@dataclass(slots=True)
class Plan:
    """A schedule under construction: by peer, pieces by name, and what each waits for as (peer, name)."""

    sends: dict[int, dict[Name, tuple[Piece, Name]]] = field(default_factory=dict)
    receives: dict[int, dict[Name, tuple[Piece, Name]]] = field(default_factory=dict)

    def send(
        self, peer: int, name: Name, span: tuple[int, int], after: tuple[int, Name] | None = None
    ) -> None:
        """Send a range to `peer`."""
        waits, awaited = after or (-1, ())
        self.sends.setdefault(peer, {})[name] = Piece(*span, waits), awaited

    def receive(
        self,
        peer: int,
        name: Name,
        span: tuple[int, int],
        after: tuple[int, Name] | None = None,
        *,
        reduce: bool,
    ) -> None:
        """Receive a range from `peer`."""
        waits, awaited = after or (-1, ())
        self.receives.setdefault(peer, {})[name] = Piece(*span, waits, reduce=reduce), awaited

    def schedule(self) -> Schedule:
        """Return the schedule, with streams in the order of names, and each wait as a number of pieces.

        Raises:
            ValueError: If a piece waits for one that the plan does not receive.
        """
        counts = {
            peer: {name: count for count, name in enumerate(sorted(pieces), start=1)}
            for peer, pieces in self.receives.items()
        }

        def number(peer: int, awaited: Name, name: Name) -> int:
            found: int | None = counts.get(peer, {}).get(awaited)
            if found is None:
                there = ", ".join(map(str, [*counts.get(peer, {})][:4])) or "none"
                raise ValueError(
                    f"the piece {name} waits for the piece {awaited} from rank {peer}, of which this rank receives "
                    f"{there}"
                )
            return found

        def resolved(pieces: Mapping[Name, tuple[Piece, Name]]) -> list[Piece]:
            return [
                piece if piece.after < 0 else piece._replace(needed=number(piece.after, awaited, name))
                for name, (piece, awaited) in sorted(pieces.items())
            ]

        return Schedule(
            {peer: resolved(pieces) for peer, pieces in self.sends.items()},
            {peer: resolved(pieces) for peer, pieces in self.receives.items()},
        )
