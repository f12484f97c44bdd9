"""The emulated link in C with a clock of one's own: packets in, packets out, and when."""

from __future__ import annotations

import ctypes
from typing import Any

from fanin.native.shared import check_structs
from fanin.p4switch.engine.library import LinkSettings, LinkStatistics, runtime
from fanin.p4switch.engine.links import LinkProperties

SECOND, MILLISECOND, MICROSECOND = 10**12, 10**9, 10**6
NEVER = 2**64 - 1
Release = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint16
)


class Wait(ctypes.Structure):
    """`struct wait`."""

    _fields_ = (
        ("packet", ctypes.c_void_p),
        ("room", ctypes.c_size_t),
        *((name, ctypes.c_uint64) for name in ("since", "until", "bytes")),
        *((name, ctypes.c_uint32) for name in ("found", "left")),
        ("checksum_offset", ctypes.c_uint16),
    )


Dequeue = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(Wait))


class CLink:
    """The link in C. `released` has (time, number) of each packet, whose first bytes are its number."""

    def __init__(self, properties: LinkProperties, stream: int = 0) -> None:
        self.c = runtime()
        check_structs(self.c, {"wait": Wait})
        self.c.link_open.restype = ctypes.c_void_p
        self.c.link_open.argtypes = [Release, Dequeue, ctypes.c_void_p, ctypes.c_uint64]
        self.c.link_wait.restype = ctypes.c_void_p
        self.c.link_wait.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_size_t),
            *(ctypes.c_uint16, ctypes.POINTER(ctypes.c_bool)),
        ]
        self.c.link_close.argtypes = [ctypes.c_void_p]
        self.c.link_set.argtypes = [ctypes.c_void_p, ctypes.POINTER(LinkSettings)]
        self.c.link_offer.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint32),
            *(ctypes.c_void_p, ctypes.c_uint16),
        ]
        self.c.link_next.restype = ctypes.c_uint64
        self.c.link_next.argtypes = [ctypes.c_void_p]
        self.c.link_release.argtypes = [ctypes.c_void_p, ctypes.c_uint64]
        self.c.link_read.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.POINTER(LinkStatistics)]
        self.now = 0
        self.released: list[tuple[int, int]] = []
        self.packets: list[tuple[bytes, int | None, int]] = []
        self.waited: list[tuple[int, int, int, int]] = []
        self._release, self._dequeue = Release(self._take), Dequeue(self._go_on)
        self._link = self.c.link_open(self._release, self._dequeue, None, stream)
        self.set(properties)

    def set(self, properties: LinkProperties) -> None:
        self.c.link_set(self._link, ctypes.byref(properties.for_runtime()))

    def _take(self, _context: int, packet: Any, length: int, checksum: int | None, offset: int) -> None:
        data = ctypes.string_at(packet, length)
        address = ctypes.cast(packet, ctypes.c_void_p).value
        assert address is not None
        self.packets.append((data, None if checksum is None else checksum - address, offset))
        self.released.append((self.now, int.from_bytes(data[:4], "big")))

    def offer(self, packet: bytes, checksum: int | None = None, offset: int = 0) -> None:
        room = ctypes.create_string_buffer(packet, len(packet))
        place = None if checksum is None else ctypes.addressof(room) + checksum
        self.c.link_offer(self._link, self.now, ctypes.addressof(room), len(packet), place, offset)
        ctypes.memset(room, 0xEE, len(packet))  # who offers a packet may use its place again

    def wait(self, packet: bytes, priority: int = 0) -> None:
        """A packet as of a program that looks at the queue: it is offered once it has waited."""
        dropped = ctypes.c_bool()
        size = len(packet)
        room = self.c.link_wait(self._link, self.now, priority, size, size, 0, ctypes.byref(dropped))
        if room:
            ctypes.memmove(room, packet, len(packet))
        elif not dropped.value:
            self.offer(packet)

    def _go_on(self, _context: int, pointer: Any) -> None:
        w = pointer.contents
        self.waited.append((w.since, w.until, w.found, w.left))
        self.c.link_offer(self._link, w.until, w.packet, w.bytes, None, 0)

    def next(self) -> int | None:
        due = int(self.c.link_next(self._link))
        return None if due == NEVER else due

    def release(self) -> None:
        self.c.link_release(self._link, self.now)

    def run_until(self, time: int) -> None:
        """A clock that misses nothing."""
        while (due := self.next()) is not None and due <= time:
            self.now = max(self.now, due)
            self.release()
        self.now = time

    def read(self) -> LinkStatistics:
        found = LinkStatistics()
        self.c.link_read(self._link, self.now, ctypes.byref(found))
        return found

    def close(self) -> None:
        self.c.link_close(self._link)


def numbered(number: int, length: int) -> bytes:
    return number.to_bytes(4, "big").ljust(length, b"\x5a")
