"""Network interfaces of the kernel: state and errors from rtnetlink(7), speed from ethtool(8)'s ioctl."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

# linux/rtnetlink.h, linux/netlink.h
_RTM_NEWLINK, _RTM_GETLINK = 16, 18
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence number, port
_LINK = struct.Struct("=BxHiII")  # family, type, index, flags, which of them to change
_ATTRIBUTE = struct.Struct("=HH")  # length, type
# linux/if_link.h
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_STATS64, _IFLA_CARRIER_CHANGES = 1, 3, 23, 35
_RX_ERRORS, _TX_ERRORS, _RX_CRC_ERRORS = 4, 5, 12  # in struct rtnl_link_stats64
_IFF_UP, _IFF_RUNNING = 0x1, 0x40
# linux/ethtool.h, linux/sockios.h
_SIOCETHTOOL = 0x8946
_ETHTOOL_GSET = 1
_ETHTOOL_CMD_BYTES = 44
_SPEED_LOW, _SPEED_HIGH = 12, 28  # offsets in struct ethtool_cmd
_UNKNOWN_SPEEDS = (0, 0xFFFF, 0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Interface:
    """State of an interface; `speed` is in Mb/s, None if the kernel does not know it. Errors count frames."""

    up: bool  # the administrative state
    running: bool  # whether it has a carrier
    address: str
    speed: int | None
    carrier_changes: int
    in_errors: int
    out_errors: int
    in_crc_errors: int


def read_interface(name: str) -> Interface | None:
    """Return the state of an interface in this network namespace; None if it does not exist.

    Raises:
        OSError: If it cannot be read.
    """
    try:
        payload = _ask(_RTM_GETLINK, 0, _LINK.pack(0, 0, 0, 0, 0) + _name(name))
    except OSError as error:
        if error.errno == errno.ENODEV:
            return None
        raise
    _, _, _, flags, _ = _LINK.unpack_from(payload)
    attributes = dict(_attributes(payload[_LINK.size :]))
    statistics = struct.unpack_from("=13Q", attributes[_IFLA_STATS64])
    return Interface(
        up=bool(flags & _IFF_UP),
        running=bool(flags & _IFF_RUNNING),
        address=attributes.get(_IFLA_ADDRESS, b"").hex(":"),
        speed=_speed(name),
        carrier_changes=int.from_bytes(attributes[_IFLA_CARRIER_CHANGES], "little"),
        in_errors=statistics[_RX_ERRORS],
        out_errors=statistics[_TX_ERRORS],
        in_crc_errors=statistics[_RX_CRC_ERRORS],
    )


def set_interface_up(name: str, up: bool) -> None:
    """Bring an interface up or down.

    Raises:
        OSError: If it does not exist, or the process lacks CAP_NET_ADMIN.
    """
    _ask(_RTM_NEWLINK, _NLM_F_ACK, _LINK.pack(0, 0, 0, _IFF_UP if up else 0, _IFF_UP) + _name(name))


def _ask(kind: int, flags: int, payload: bytes) -> bytes:
    """Send a request to the kernel and return its answer; empty for a plain acknowledgement."""
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
    ) as link:
        header = _HEADER.pack(_HEADER.size + len(payload), kind, flags | _NLM_F_REQUEST, 1, 0)
        link.send(header + payload)
        answer = link.recv(1 << 16)
    _, answered, _, _, _ = _HEADER.unpack_from(answer)
    if answered != _NLMSG_ERROR:
        return answer[_HEADER.size :]
    (code,) = struct.unpack_from("=i", answer, _HEADER.size)
    if code:
        raise OSError(-code, os.strerror(-code))
    return b""


def _name(name: str) -> bytes:
    value = name.encode() + b"\0"
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), _IFLA_IFNAME) + value + bytes(-len(value) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        yield kind, data[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) // 4 * 4


def _speed(name: str) -> int | None:
    command = ctypes.create_string_buffer(struct.pack("=I", _ETHTOOL_GSET), _ETHTOOL_CMD_BYTES)
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        try:
            fcntl.ioctl(asking, _SIOCETHTOOL, request)
        except OSError:
            return None
    (low,), (high,) = (struct.unpack_from("=H", command, at) for at in (_SPEED_LOW, _SPEED_HIGH))
    speed = high << 16 | low
    return None if speed in _UNKNOWN_SPEEDS else speed
