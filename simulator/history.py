"""The history of a run as one number: runs with the same digest are the same, byte for byte."""

import hashlib

from fanin.simulator.links import Packets, Transit


class History:
    """An observer of a VirtualNetwork; `digest` covers the time, the link and the bytes of every arrival so far."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def __call__(self, arrived: Transit, store: Packets) -> None:
        """Add arrivals to the digest."""
        for link, time, packet in zip(
            arrived.links.tolist(), arrived.times.tolist(), arrived.packets.tolist(), strict=True
        ):
            length = int(store.lengths[packet])
            self._hash.update(f"{time} {link} {length} ".encode())
            self._hash.update(store.rows[packet, :length].tobytes())

    @property
    def digest(self) -> str:
        """Return the digest in hexadecimal."""
        return self._hash.hexdigest()
