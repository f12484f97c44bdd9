"""A worker that sends less when links are congested, and more when they are not."""

import struct

VALUES, SLOTS = 4, 32
TYPE_IPV4, UDP, PORT = 0x0800, 17, 5005
CAPABLE, CONGESTED = 2, 3  # of the two ECN bits, RFC 3168
GAIN = 1 / 16  # the weight of the newest round trip in the share
ETHER = struct.Struct("!6s6sH")
IP = struct.Struct("!BBHHHBBH4s4s")
CHUNK = struct.Struct("!BBBBI4i")  # workers, rank, slot, version, number of the chunk, values


class Worker:
    """A worker without sockets and clock. Each function returns the frames to send.

    Attributes:
        window: How many chunks may be in flight; the fraction does not count.
        share: The smoothed share of results with a mark.
        result: The sum of all workers' vectors, or None as long as something is missing.
    """

    def __init__(self, rank: int, workers: int, vector: list[int]) -> None:
        self.rank, self.workers, self.vector = rank, workers, vector
        self.window, self.share = 2.0, 1.0
        self.round = 2  # results after which a round trip is over
        self.answered = self.marked = 0  # results of this round trip, and how many of them have a mark
        self.next = 0  # the first chunk that was not sent yet
        self.in_flight: set[int] = set()  # numbers of the chunks that were sent and have no result yet
        self.sums: dict[int, tuple[int, ...]] = {}  # by number of the chunk
        self.result: list[int] | None = None

    def start(self) -> list[bytes]:
        """Return the first frames."""
        return self.fill()

    def receive(self, frame: bytes) -> list[bytes]:
        """Take a frame that has arrived."""
        _, _, _, _, chunk, *values = CHUNK.unpack_from(frame, 42)
        if chunk not in self.in_flight:
            return []
        self.in_flight.remove(chunk)
        self.sums[chunk] = tuple(values)
        if len(self.sums) == self.chunks:
            self.result = [value for number in range(self.chunks) for value in self.sums[number]]
        # TODO 5: count this result and its mark; after `self.round` results, call end_round
        return self.fill()

    def timeout(self) -> list[bytes]:
        """Return what to send after nothing has arrived for a millisecond."""
        return [self.frame(chunk) for chunk in sorted(self.in_flight)]

    def fill(self) -> list[bytes]:
        """Return the frames of further chunks, as many as the window and the slots allow."""
        frames = []
        while (
            self.next < self.chunks and len(self.in_flight) < SLOTS and self.slot_is_free(self.next)
        ):  # TODO 4: the window
            self.in_flight.add(self.next)
            frames.append(self.frame(self.next))
            self.next += 1
        return frames

    def end_round(self) -> None:
        """Adapt the window after a round trip."""
        # TODO 6: the share, the window, and the next round trip

    @property
    def chunks(self) -> int:
        """Return the number of chunks of the vector."""
        return len(self.vector) // VALUES

    def slot_is_free(self, chunk: int) -> bool:
        """Return whether the chunk that was in this slot before has its result."""
        return chunk < SLOTS or chunk - SLOTS in self.sums

    def frame(self, chunk: int) -> bytes:
        """Return the frame with a chunk."""
        values = self.vector[chunk * VALUES : (chunk + 1) * VALUES]
        slot, version = chunk % SLOTS, chunk // SLOTS % 2
        payload = CHUNK.pack(self.workers, self.rank, slot, version, chunk, *values)
        udp = struct.pack("!HHHH", PORT, PORT, 8 + len(payload), 0)  # without a checksum
        addresses = bytes([10, 0, 0, self.rank + 1]), bytes([10, 0, 0, 254])
        fields = [
            0x45,
            0,
            28 + len(payload),
            0,
            0,
            64,
            UDP,
            0,
            *addresses,
        ]  # TODO 3: the second one has the ECN bits
        total = sum(struct.unpack("!10H", IP.pack(*fields)))
        total = (total & 0xFFFF) + (total >> 16)
        fields[7] = ~total & 0xFFFF
        ether = ETHER.pack(bytes.fromhex("0200000000fe"), bytes([2, 0, 0, 0, 0, self.rank + 1]), TYPE_IPV4)
        return ether + IP.pack(*fields) + udp + payload
