"""Status of ports: up if the interface has a carrier (IFF_RUNNING, netdevice(7)), followed with rtnetlink(7)."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping

_SIOCGIFFLAGS = 0x8913
_IFF_RUNNING = 0x40
_RTMGRP_LINK = 1


class PortMonitor:
    """Thread that calls `changed` with the ports that are down whenever that changes, and sleeps in between.

    `down` is what `changed` was last called with. `since` is the time when each port was last seen to go up or down, in
    nanoseconds since 1970, initially the time of the first look. A missing interface is down. `listeners` are called
    afterwards, on any change of an interface.
    """

    def __init__(self, ports: Mapping[int, str], changed: Callable[[frozenset[int]], None]) -> None:
        self._ports = dict(ports)
        self._changed = changed
        self._links = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._links.setblocking(False)
        # Kept open: there may be no free file descriptor when a link goes down.
        self._asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._links.bind((0, _RTMGRP_LINK))
        self._end = os.eventfd(0, os.EFD_CLOEXEC)
        self.listeners: frozenset[Callable[[], None]] = frozenset()
        self.since = dict.fromkeys(ports, time.time_ns())
        self._looking = threading.Lock()
        self._seen: frozenset[int] = frozenset()
        self.down = self.look()
        self._thread = threading.Thread(target=self._run, name="p4switch port status", daemon=True)
        self._thread.start()

    def look(self) -> frozenset[int]:
        """Return the ports that are down now and update `since`. `changed` may not have been called yet."""
        with self._looking:
            down = frozenset(
                port for port, interface in self._ports.items() if not _is_running(self._asking, interface)
            )
            self.since.update(dict.fromkeys(down ^ self._seen, time.time_ns()))
            self._seen = down
        return down

    def stop(self) -> None:
        """Stop the thread."""
        os.eventfd_write(self._end, 1)
        self._thread.join()
        os.close(self._end)
        self._links.close()
        self._asking.close()

    def _run(self) -> None:
        while True:
            ready, _, _ = select.select([self._links.fileno(), self._end], [], [])
            if self._end in ready:
                return
            self._drain()
            down = self.look()
            if down != self.down:
                self.down = down
                self._changed(down)
            for tell in self.listeners:
                tell()

    def _drain(self) -> None:
        """Read and discard all messages of the kernel: only their arrival matters."""
        try:
            while self._links.recv(1 << 16):
                pass
        except OSError:  # nothing is left, or messages were lost because the buffer was full
            pass


def _is_running(asking: socket.socket, interface: str) -> bool:
    request = struct.pack("16sH22x", interface.encode(), 0)
    try:
        (flags,) = struct.unpack_from("H", fcntl.ioctl(asking, _SIOCGIFFLAGS, request), 16)
    except OSError as error:
        if error.errno == errno.ENODEV:
            return False
        raise
    return bool(flags & _IFF_RUNNING)
