"""Captures of the ports with --pcap: a pcap file for each direction of each port, named as BMv2 names them."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path

from fanin.p4switch.bmv2json.program import LONGEST_PACKET

# draft-ietf-opsawg-pcap, section 4: microseconds, version 2.4, the longest packet, Ethernet.
_FILE_HEADER = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, LONGEST_PACKET, 1)


def open_captures(folder: Path, ports: Mapping[int, str]) -> dict[int, tuple[int, int]]:
    """Begin INTERFACE_in.pcap and INTERFACE_out.pcap for each port; earlier files of that name are replaced.

    Returns:
        The descriptors of both files, by port.

    Raises:
        OSError: If a file cannot be written. The error names it.
    """
    return {
        port: (_begin(folder / f"{interface}_in.pcap"), _begin(folder / f"{interface}_out.pcap"))
        for port, interface in ports.items()
    }


def _begin(path: Path) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.write(file, _FILE_HEADER)
    return file
