"""A worker: it sends its vector chunk by chunk, and collects the sums."""

import struct

VALUES = 4
TYPE = 0x88B6
SWITCH = bytes.fromhex("0200000000fe")
HEADER = struct.Struct("!BBH4i")  # workers, rank, slot, values


class Worker:
    """A worker without sockets and clock. Each function returns the frames to send.

    Attributes:
        result: The sum of all workers' vectors, or None as long as something is missing.
    """

    def __init__(self, rank: int, workers: int, vector: list[int]) -> None:
        self.rank, self.workers, self.vector = rank, workers, vector
        self.mac = bytes.fromhex("0200000000") + bytes([rank + 1])
        self.sums: dict[int, tuple[int, ...]] = {}  # by slot
        self.result: list[int] | None = None

    def start(self) -> list[bytes]:
        """Return the first frames."""
        return [self.frame(slot) for slot in range(self.chunks)]

    def receive(self, frame: bytes) -> list[bytes]:
        """Take a frame that has arrived."""
        if frame[12:14] == TYPE.to_bytes(2) and len(frame) >= 14 + HEADER.size:
            _, _, slot, *values = HEADER.unpack_from(frame, 14)
            self.sums[slot] = tuple(values)
            if len(self.sums) == self.chunks:
                self.result = [value for slot in range(self.chunks) for value in self.sums[slot]]
        return []

    def timeout(self) -> list[bytes]:
        """Return what to send after nothing has arrived for a millisecond."""
        return [self.frame(slot) for slot in range(self.chunks) if slot not in self.sums]

    @property
    def chunks(self) -> int:
        """Return the number of chunks of the vector."""
        return len(self.vector) // VALUES

    def frame(self, slot: int) -> bytes:
        """Return the frame with the chunk of a slot."""
        values = self.vector[slot * VALUES : (slot + 1) * VALUES]
        return SWITCH + self.mac + TYPE.to_bytes(2) + HEADER.pack(self.workers, self.rank, slot, *values)
