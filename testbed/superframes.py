"""Test of whether this kernel carries superframes between a host's UDP socket and a switch's packet socket.

A superframe is many UDP datagrams in one frame (UDP_SEGMENT, UDP_GRO). A packet socket describes it by a virtio header
(PACKET_VNET_HDR), which has a type for it since Linux 6.2. Before that, the socket answers EINVAL and the frame is
lost.
"""

from __future__ import annotations

import logging
import platform
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

from fanin.native import libc
from fanin.topologies.errors import NetworkError

# linux/sched.h, linux/udp.h, linux/if_packet.h, linux/if_ether.h, linux/virtio_net.h
_SOL_UDP, _UDP_SEGMENT, _UDP_GRO = 17, 103, 104
_SOL_PACKET, _PACKET_VNET_HDR = 263, 15
_ETH_P_ALL, _ETH_P_IP = 3, 0x0800
_NEEDS_CSUM, _GSO_UDP_L4 = 1, 5
# Flags, GSO type, length of headers, size of a segment, where the checksum starts and its offset from there.
_VIRTIO = struct.Struct("=BBHHHH")

# Seconds. Packets arrive immediately if at all, but an interface that has just come up may drop them for a moment, so
# they are repeated.
_TIMEOUT, _AGAIN_AFTER = 2.0, 0.02
_SEGMENT = 1000
_DATA = bytes(i % 251 for i in range(3 * _SEGMENT + 500))
_HOST, _SWITCH, _PORT = "192.0.2.1", "192.0.2.2", 48879  # TEST-NET-1 (RFC 5737)
_HOST_MAC, _SWITCH_MAC = "02:00:c0:00:02:01", "02:00:c0:00:02:02"
_HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP
NEAR, FAR = "probe0", "probe1"  # the host's interface and the switch's
_SET_UP = f"""\
link add {NEAR} address {_HOST_MAC} type veth peer name {FAR} address {_SWITCH_MAC}
link set {FAR} up
link set {NEAR} up
address add {_HOST}/30 dev {NEAR}
neighbour add {_SWITCH} lladdr {_SWITCH_MAC} dev {NEAR} nud permanent
"""

COSTS = "datagrams cross the network one by one, and large all-reduces take several times as long; sums are the same"

_logger = logging.getLogger(__name__)


@cache
def carried() -> bool:
    """Return whether superframes pass both ways, tried once. If they do not, a line in the log reports what that costs.

    Raises:
        NetworkError: No namespace or veth pair can be created.
    """
    if reason := refusal():
        _logger.warning("%s: %s (Linux 6.2 or later carries them)", reason, COSTS)
    return not reason


def refusal() -> str | None:
    """Return what this kernel refuses, tried with a veth pair in a separate namespace; None if it refuses nothing.

    Raises:
        NetworkError: No namespace or veth pair can be created.
    """

    def inside() -> str | None:
        _enter_namespace()
        return _try_both_ways()

    with ThreadPoolExecutor(1) as pool:  # the namespace and all in it disappear with the thread
        return pool.submit(inside).result()


def _enter_namespace() -> None:
    try:
        libc.call("unshare", libc.NEW_NETWORK)
    except OSError as error:
        raise NetworkError(f"no network namespace can be made: {error.strerror}") from None
    done = subprocess.run(["ip", "-batch", "-"], input=_SET_UP, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NetworkError(f"no veth pair can be made: {done.stderr.strip()}")


def _try_both_ways() -> str | None:
    kernel = f"Linux {platform.release()}"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as host,
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as switch,
    ):
        for end in (host, switch):
            end.settimeout(_AGAIN_AFTER)
        host.bind((_HOST, _PORT))
        host.connect((_SWITCH, _PORT))
        for option, level, name, value in (
            ("UDP_SEGMENT", _SOL_UDP, _UDP_SEGMENT, _SEGMENT),
            ("UDP_GRO", _SOL_UDP, _UDP_GRO, 1),
            ("PACKET_VNET_HDR", _SOL_PACKET, _PACKET_VNET_HDR, 1),
        ):
            try:
                (host if level == _SOL_UDP else switch).setsockopt(level, name, value)
            except OSError as error:
                return f"{kernel} does not know {option} ({error.strerror})"
        switch.bind((FAR, _ETH_P_ALL))
        ways = (
            ("from hosts to switches", host, _DATA, switch, _as_seen_by_switch),
            ("from switches to hosts", switch, _superframe(), host, _as_seen_by_host),
        )
        for way, sender, sent, receiver, seen in ways:
            try:
                arrived = _carry(sender, sent, receiver, seen)
            except OSError as error:
                said = "nothing arrives" if isinstance(error, TimeoutError) else error.strerror
                return f"{kernel} loses UDP superframes {way} ({said})"
            if arrived != (_SEGMENT, _DATA):
                return f"{kernel} splits UDP superframes {way}"
    return None


Seen = tuple[int | None, bytes]  # the size of a segment, if it is a superframe, and the datagrams' data


def _carry(
    sender: socket.socket, sent: bytes, receiver: socket.socket, seen: Callable[[socket.socket], Seen | None]
) -> Seen:
    """Send until something arrives, and return it.

    Raises:
        TimeoutError: Nothing arrives.
        OSError: A socket refuses it.
    """
    deadline = time.monotonic() + _TIMEOUT
    while True:
        sender.send(sent)
        try:
            while (arrived := seen(receiver)) is None:
                pass
        except TimeoutError:
            if time.monotonic() > deadline:
                raise
        else:
            return arrived


def _as_seen_by_switch(switch: socket.socket) -> Seen | None:
    """Return the next frame; None if it is not IPv4."""
    received = switch.recv(1 << 17)
    frame = received[_VIRTIO.size :]
    _, kind, _, size, _, _ = _VIRTIO.unpack_from(received)
    if frame[12:14] != _ETH_P_IP.to_bytes(2, "big"):
        return None
    return size if kind == _GSO_UDP_L4 else None, frame[_HEADERS:]


def _as_seen_by_host(host: socket.socket) -> Seen:
    """Return the next message."""
    data, ancillary, _, _ = host.recvmsg(1 << 16, socket.CMSG_SPACE(4))
    sizes = [
        struct.unpack("=i", value)[0]
        for level, kind, value in ancillary
        if (level, kind) == (_SOL_UDP, _UDP_GRO)
    ]
    return sizes[0] if sizes else None, data


def _superframe() -> bytes:
    """Return a superframe as a switch sends it. Its UDP checksum is the pseudo-header's sum, as the kernel requires."""
    virtio = _VIRTIO.pack(_NEEDS_CSUM, _GSO_UDP_L4, _HEADERS, _SEGMENT, _HEADERS - 8, 6)
    length = 8 + len(_DATA)
    addresses = socket.inet_aton(_SWITCH) + socket.inet_aton(_HOST)
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0x4000, 64, 17, 0) + addresses
    ip = ip[:10] + struct.pack("!H", 0xFFFF - _sum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", _PORT, _PORT, length, _sum(addresses + struct.pack("!HH", 17, length)))
    macs = bytes.fromhex((_HOST_MAC + _SWITCH_MAC).replace(":", ""))
    return virtio + macs + _ETH_P_IP.to_bytes(2, "big") + ip + udp + _DATA


def _sum(data: bytes) -> int:
    """Return the sum of RFC 1071 over an even number of bytes."""
    words: tuple[int, ...] = struct.unpack(f"!{len(data) // 2}H", data)
    return sum(words) % 0xFFFF


if __name__ == "__main__":  # prints what is refused, if anything; run by `fanin doctor` in `unshare --net`
    print(refusal() or "")
