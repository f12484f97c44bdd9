"""The lease of a job: its right to use slots and chunk numbers, as its workers hold it."""

from dataclasses import dataclass

from fanin.workers import wire
from fanin.workers.values import quantization


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of a job to use slots and chunk numbers, as the controller granted it to one of its workers.

    Attributes:
        id: Number of the lease, 1 to 255.
        rank: This worker's number.
        workers: Number of workers.
        window: Packets that a worker may have in flight.
        first_slot: The first slot of the lease.
        values: Integers in a packet: 64 or 256 of 32 bits, or 128 or 512 of 16 bits.
        first_chunk: Its first chunk number. A lease is used only once, by one set of workers, since packets with these
            numbers may still be on the way or in the switches.
        last_chunk: Its last chunk number.
        slots: Number of slots, from first_slot on; None: as many as the window. Protocols whose jobs share slots
            (protocols/atp) have windows that differ from it.

    Raises:
        ValueError: If a number is out of range.
    """

    id: int
    rank: int
    workers: int
    window: int
    first_slot: int = 0
    values: int = 256
    first_chunk: int = 0
    last_chunk: int = wire.CHUNKS - 1
    slots: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.id < wire.LEASES:
            raise ValueError(f"lease id must be from 1 to {wire.LEASES - 1}, not {self.id}")
        if self.values not in wire.SIZES:
            raise ValueError(f"values must be one of {list(wire.SIZES)}, not {self.values}")
        most = quantization.MAX_WORKERS[self.bits]
        if not 0 < self.workers <= most:
            raise ValueError(
                f"workers must be from 1 to {most} with integers of {self.bits} bits, not {self.workers}"
            )
        if not 0 <= self.rank < self.workers:
            raise ValueError(
                f"rank must be from 0 to {self.workers - 1} with {self.workers} workers, not {self.rank}"
            )
        slots = self.window if self.slots is None else self.slots
        if min(self.window, slots) < 1 or self.first_slot < 0 or self.first_slot + slots > wire.SLOT_NUMBERS:
            raise ValueError(
                f"window must be at least 1 and its slots within 0 to {wire.SLOT_NUMBERS - 1}, "
                f"not {slots} from slot {self.first_slot}"
            )
        if not 0 <= self.first_chunk <= self.last_chunk < wire.CHUNKS:
            raise ValueError(
                f"chunk numbers must be within 0 to {wire.CHUNKS - 1}, not from {self.first_chunk} to {self.last_chunk}"
            )

    @property
    def bits(self) -> int:
        """Return the bits of an integer, 32 or 16."""
        return wire.BITS[self.values]

    def block(self, bits: int | None) -> int:
        """Return how many integers of this many bits fit into a packet. None: as many as `values`."""
        return self.values * self.bits // (bits or self.bits)
