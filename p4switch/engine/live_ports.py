"""The switch on a network: interfaces as ports, the forwarding thread, and packets to and from the control plane."""

from __future__ import annotations

import ctypes
import logging
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping

from fanin.p4switch.bmv2json.program import LONGEST_PACKET
from fanin.p4switch.engine.library import LinkStatistics, PortStatistics, runtime
from fanin.p4switch.engine.links import Direction, LinkProperties

# Drops arriving packets behind the tap: the host's own stack would otherwise process (and answer) them a second time.
# The program is classic BPF, "return 2", which clsact reads as TC_ACT_SHOT.
TAKE_FROM_HOST = (
    "qdisc add dev {0} clsact\nfilter add dev {0} ingress protocol all prio 1 bpf da bytecode '1,6 0 0 2'\n"
)
GIVE_BACK = "qdisc del dev {0} clsact\n"
# Waits for the end of its input, which comes however the switch ends, and then restores the interfaces.
GUARD = 'cat; printf %s "$1" | tc -force -batch -'

_NO_PORT = (
    0xFFFFFFFF  # number of the socket to the control plane without a CPU port: no program can send there
)
_SO_SNDBUFFORCE = 32  # the socket module lacks it
_CONTROL_BUFFER = 16 << 20  # bytes of packets to the control plane that wait, with the kernel's overhead

_log = logging.getLogger(__name__)


class PortError(Exception):
    """Port that cannot be opened, or that must be open and is not. The message names the interface and the cure."""


class LivePorts:
    """Open ports and their threads.

    Raises:
        PortError: If one of them cannot be opened.
    """

    def __init__(
        self,
        base: int,
        ports: Mapping[int, str],
        cpu_port: int | None,
        packet_in: Callable[[bytes], None] | None,
        offload: bool,
        links: Mapping[tuple[int, Direction], LinkProperties],
        captures: Mapping[int, tuple[int, int]],
    ) -> None:
        if cpu_port is not None and cpu_port in ports:
            raise PortError(f"port {cpu_port} is the CPU port and cannot be {ports[cpu_port]} as well")
        self._sockets: list[socket.socket] = []
        self._guard: subprocess.Popen[bytes] | None = None
        self._forwarder: int | None = None
        self._control, self._inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._is_idle = True
        self._packet_in = packet_in
        self._threads: list[threading.Thread] = []
        # Without a CPU port the program sends nothing there, but packets are still injected.
        self._control_port = _NO_PORT if cpu_port is None else cpu_port
        self._numbers = [*ports, self._control_port]
        try:
            self._open(base, ports, offload)
            for (number, direction), properties in links.items():
                self.set_link(number, direction, properties)
            for number, (incoming, outgoing) in captures.items():
                runtime().forwarder_capture(self._forwarder, self._index(number), incoming, outgoing)
            self._start()
        except BaseException:
            self.close()
            raise

    def _open(self, base: int, ports: Mapping[int, str], offload: bool) -> None:
        for number, interface in ports.items():
            opened = runtime().port_open(interface.encode())
            if opened < 0:
                raise PortError(
                    f"port {number}: cannot open interface {interface}: {os.strerror(-opened)}"
                    " (it has to exist in this network namespace, and raw sockets need CAP_NET_RAW)"
                )
            self._sockets.append(socket.socket(fileno=opened))
        try:  # without the privilege the buffer is as large as the system lets it be
            self._inner.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _CONTROL_BUFFER)
        except PermissionError:
            self._inner.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _CONTROL_BUFFER)
        interfaces = dict.fromkeys(ports.values())
        if interfaces:
            give_back = "".join(map(GIVE_BACK.format, interfaces))
            _tc(give_back, check=False)  # a filter that somebody else has installed
            self._guard = subprocess.Popen(
                ["sh", "-c", GUARD, "sh", give_back],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must not end it
            )
            _tc("".join(map(TAKE_FROM_HOST.format, interfaces)))
        count = len(self._numbers)
        self._forwarder = runtime().forwarder_open(
            base,
            count,
            (ctypes.c_uint32 * count)(*self._numbers),
            (ctypes.c_int32 * count)(*(s.fileno() for s in (*self._sockets, self._inner))),
            self._control_port,
            offload,
        )
        if not self._forwarder:
            raise PortError(f"no memory for {count} ports")

    def _start(self) -> None:
        forward = threading.Thread(
            target=runtime().forwarder_run, args=(self._forwarder,), name="p4switch forwarding", daemon=True
        )
        self._threads.append(forward)
        if self._control_port != _NO_PORT:
            self._threads.append(
                threading.Thread(
                    target=self._receive, args=(self._control,), name="p4switch packet-in", daemon=True
                )
            )
        for thread in self._threads:
            thread.start()

    def packet_out(self, packet: bytes, port: int) -> None:
        """Send a packet to the forwarding thread.

        Raises:
            PortError: If the packet is too long.
        """
        if len(packet) > LONGEST_PACKET:
            raise PortError(
                f"a packet of {len(packet)} bytes: with its headers it has at most {LONGEST_PACKET}"
            )
        self._control.send(struct.pack("=I", port) + packet)

    def now(self) -> int:
        """Return the microseconds since the ports were opened, the clock that packets are processed by."""
        return int(runtime().forwarder_now(self._forwarder))

    def statistics(self) -> dict[int, PortStatistics]:
        """Return the statistics of each port."""
        found = {}
        for index, number in enumerate(self._numbers):
            if number == _NO_PORT:
                continue
            found[number] = PortStatistics()
            runtime().forwarder_statistics(self._forwarder, index, ctypes.byref(found[number]))
        return found

    def set_link(self, number: int, direction: Direction, properties: LinkProperties) -> None:
        """Set the emulated link at a port. The caller holds the switch's lock.

        Raises:
            PortError: If the port is not open, or there is no memory.
        """
        settings = properties.for_runtime()
        index, ingress = self._index(number), direction == Direction.INGRESS
        if not runtime().forwarder_set_link(self._forwarder, index, ingress, ctypes.byref(settings)):
            raise PortError(f"no memory for a link at port {number}")

    def link_statistics(self, number: int, direction: Direction) -> LinkStatistics | None:
        """Return the statistics of an emulated link; None if there was none. The caller holds the switch's lock."""
        found = LinkStatistics()
        index, ingress = self._index(number), direction == Direction.INGRESS
        there = runtime().forwarder_read_link(self._forwarder, index, ingress, ctypes.byref(found))
        return found if there else None

    def _index(self, number: int) -> int:
        if number not in self._numbers:
            raise PortError(f"port {number} is not open")
        return self._numbers.index(number)

    def close(self) -> None:
        """Stop the threads, close the sockets and restore the interfaces."""
        if self._forwarder:
            runtime().forwarder_stop(self._forwarder)
        self._control.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join()
        if self._forwarder:
            runtime().forwarder_close(self._forwarder)
            self._forwarder = None
        for opened in (*self._sockets, self._inner, self._control):
            opened.close()
        if self._guard is not None:
            self._guard.communicate()
            self._guard = None

    def _receive(self, control: socket.socket) -> None:
        """Receive packets from the program to the control plane, until the socket is shut down."""
        refused = 0
        while packet := self._next_packet(control):
            if self._packet_in is not None:
                self._packet_in(packet)
            if self._is_idle and (now := self.statistics()[self._control_port].dropped) > refused:
                _log.warning(
                    "%d packets to the CPU port were dropped, %d since the program was loaded: they came faster than "
                    "they are read",
                    now - refused,
                    now,
                )
                refused = now

    def _next_packet(self, control: socket.socket) -> bytes:
        """Return a packet; wait if there is none, in which case the next one finds the thread idle."""
        try:
            packet = control.recv(1 << 17, socket.MSG_DONTWAIT)
            self._is_idle = False
        except BlockingIOError:
            self._is_idle = True
            packet = control.recv(1 << 17)
        return packet


def _tc(commands: str, *, check: bool = True) -> None:
    """Run commands in one `tc -batch`. Without `check`, failing commands are skipped."""
    force: Iterable[str] = () if check else ("-force",)
    try:
        done = subprocess.run(
            ["tc", *force, "-batch", "-"], input=commands, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        raise PortError("the command tc is needed (Debian: apt-get install iproute2)") from None
    if check and done.returncode:
        raise PortError(f"tc: {done.stderr.strip()}")
