"""What happened, as one number: two runs with the same digest are the same, byte for byte."""

import hashlib

from fanin.simulator.links import Transit
from fanin.simulator.packets import Packets


class History:
    """An observer of a VirtualNetwork; `digest` covers every arrival so far: its time, its link and its bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Take note of arrivals."""
        for link, time, packet in zip(
            arrived.links.tolist(), arrived.times.tolist(), arrived.packets.tolist(), strict=True
        ):
            length = int(store.lengths[packet])
            self._hash.update(f"{time} {link} {length} ".encode())
            self._hash.update(store.rows[packet, :length].tobytes())

    @property
    def digest(self) -> str:
        """Hexadecimal."""
        return self._hash.hexdigest()
