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
        return []  # TODO 4: send a chunk in each slot

    def receive(self, frame: bytes) -> list[bytes]:
        """Take a frame that has arrived."""
        _, _, _, _, chunk, *values = HEADER.unpack_from(frame, 14)
        # TODO 4: keep the sums, set self.result when all are there, and send the next chunk of this slot.
        return []

    def timeout(self) -> list[bytes]:
        """Return what to send after nothing has arrived for a millisecond."""
        return []  # TODO 5: retransmit

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
