"""Captures of all switch ports of a network: a pcap file for each, written by a separate process.

The file of a port shows what crosses its interface. With segmentation offload these are superframes: frames of up to 64
KiB that hold many datagrams. The kernel leaves the checksums of such frames for later.
"""

from __future__ import annotations

import logging
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from fanin.testbed.patience import await_process, setting
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology

_ETH_P_ALL = 3  # linux/if_ether.h
_SO_TIMESTAMPNS = 35  # asm-generic/socket.h
_SO_RCVBUFFORCE = 33
_BUFFER = 64 << 20
_LONGEST = 1 << 17
_STOP_SECONDS = 10.0  # to write what it has captured

_logger = logging.getLogger(__name__)

# https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-06.html, section 4: nanoseconds; Ethernet.
_FILE_HEADER = struct.pack("=IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _LONGEST, 1)


class Capture:
    """A capture of all switch ports of `topology`, in files `folder`/<switch>-eth<port>.pcap."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self._interfaces = [
            name for switch in topology.switches for name in topology.interfaces(switch.name).values()
        ]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the capture, and return when every port is captured.

        Raises:
            NetworkError: The ports cannot be captured. The message explains why.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "fanin.testbed.capture", str(self._folder), *self._interfaces],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        try:
            await_process(self._process.pid, self._process.stdout.fileno())
        except NetworkError as error:
            self._process.kill()
            raise NetworkError(f"the ports cannot be captured: {error}") from None
        if not self._process.stdout.readline():
            _, errors = self._process.communicate()
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise NetworkError("the ports cannot be captured: " + "".join(last))

    def stop(self) -> None:
        """Complete the files. Idempotent."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.communicate(timeout=_STOP_SECONDS * setting())
            except subprocess.TimeoutExpired:
                _logger.warning(
                    "the captures may lack their last packets: their process did not end and was killed"
                )
                self._process.kill()
                self._process.communicate()
            self._process = None


def _open(interface: str) -> socket.socket:
    capture = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        capture.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    except PermissionError:  # in a user namespace: as much as net.core.rmem_max allows
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    capture.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    capture.bind((interface, _ETH_P_ALL))
    return capture


def _copy_waiting(capture: socket.socket, buffer: bytearray, file: BinaryIO) -> None:
    """Append the packets that have arrived to the file, and flush it so that readers see them immediately."""
    while True:
        try:
            length, ancillary, _, _ = capture.recvmsg_into(
                [buffer], socket.CMSG_SPACE(16), socket.MSG_DONTWAIT | socket.MSG_TRUNC
            )
        except BlockingIOError:
            file.flush()
            return
        seconds, nanoseconds = struct.unpack("=qq", ancillary[0][2])
        kept = min(length, len(buffer))
        file.write(struct.pack("=IIII", seconds & 0xFFFFFFFF, nanoseconds, kept, length))
        file.write(memoryview(buffer)[:kept])


def main(folder: Path, interfaces: Sequence[str]) -> None:
    """Capture until SIGTERM. A line on standard output announces that the capture has begun."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    buffer = bytearray(_LONGEST)
    poll = select.poll()
    with ExitStack() as stack:
        captures = {}
        for interface in interfaces:
            capture = stack.enter_context(_open(interface))
            file = stack.enter_context((folder / f"{interface}.pcap").open("wb"))
            file.write(_FILE_HEADER)
            file.flush()
            captures[capture.fileno()] = capture, file
            poll.register(capture, select.POLLIN)
        poll.register(reader, select.POLLIN)
        print("ready", flush=True)
        ended = False
        while not ended:
            for descriptor, _ in poll.poll():
                if descriptor == reader.fileno():
                    ended = True
            for capture, file in captures.values():
                _copy_waiting(capture, buffer, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
