"""A worker with a window: it has at most one chunk in flight in each slot."""

import struct

VALUES, SLOTS = 4, 4
TYPE = 0x88B6
SWITCH = bytes.fromhex("0200000000fe")
HEADER = struct.Struct("!BBBBI4i")  # workers, rank, slot, version, number of the chunk, values


class Worker:
    """A worker without sockets and clock. Each function returns the frames to send.

    Attributes:
        result: The sum of all workers' vectors, or None as long as something is missing.
    """

    def __init__(self, rank: int, workers: int, vector: list[int]) -> None:
        self.rank, self.workers, self.vector = rank, workers, vector
        self.mac = bytes.fromhex("0200000000") + bytes([rank + 1])
        self.sums: dict[int, tuple[int, ...]] = {}  # by number of the chunk
        self.in_flight: set[int] = set()  # numbers of the chunks that were sent and have no result yet
        self.result: list[int] | None = None

    def start(self) -> list[bytes]:
        """Return the first frames."""
        self.in_flight = set(range(min(SLOTS, self.chunks)))
        return [self.frame(chunk) for chunk in sorted(self.in_flight)]

    def receive(self, frame: bytes) -> list[bytes]:
        """Take a frame that has arrived."""
        _, _, _, _, chunk, *values = HEADER.unpack_from(frame, 14)
        if chunk not in self.in_flight:
            return []
        self.in_flight.remove(chunk)
        self.sums[chunk] = tuple(values)
        if len(self.sums) == self.chunks:
            self.result = [value for number in range(self.chunks) for value in self.sums[number]]
        following = chunk + SLOTS
        if following >= self.chunks:
            return []
        self.in_flight.add(following)
        return [self.frame(following)]

    def timeout(self) -> list[bytes]:
        """Return what to send after nothing has arrived for a millisecond."""
        return [self.frame(chunk) for chunk in sorted(self.in_flight)]

    @property
    def chunks(self) -> int:
        """Return the number of chunks of the vector."""
        return len(self.vector) // VALUES

    def frame(self, chunk: int) -> bytes:
        """Return the frame with a chunk."""
        values = self.vector[chunk * VALUES : (chunk + 1) * VALUES]
        slot, version = chunk % SLOTS, chunk // SLOTS % 2
        header = HEADER.pack(self.workers, self.rank, slot, version, chunk, *values)
        return SWITCH + self.mac + TYPE.to_bytes(2) + header
