"""A switch with two ports that captures, in this network namespace. Arguments: the program, the folder of captures.

Prints what the files hold, by name, while the switch runs.
"""

import json
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

PACKETS = [b"\2" * 6 + bytes([number]) * 60 for number in (1, 2)] + [b"\3" * 1400]


def make_port(number: int) -> socket.socket:
    """A veth pair, s<number> for the switch; the socket of its other end."""
    host, port = f"h{number}", f"s{number}"
    subprocess.run(["ip", "link", "add", host, "type", "veth", "peer", "name", port], check=True)
    for interface in (host, port):
        Path(f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6").write_text("1")
        subprocess.run(["ip", "link", "set", interface, "up"], check=True)
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.bind((host, 0))
    link.settimeout(30)
    return link


def captured(path: Path) -> list[str]:
    """The packets of a pcap file, in hexadecimal."""
    content = path.read_bytes()
    magic, major, minor, _, _, longest, link_type = struct.unpack_from("=IHHiIII", content)
    assert (magic, major, minor, link_type) == (0xA1B2C3D4, 2, 4, 1)
    packets, at = [], 24
    while at < len(content):
        seconds, microseconds, kept, length = struct.unpack_from("=IIII", content, at)
        assert seconds > 1_700_000_000
        assert microseconds < 1_000_000
        assert kept == length <= longest
        packets.append(content[at + 16 : at + 16 + kept].hex())
        at += 16 + kept
    return packets


def main(program: str, folder: str) -> None:
    near, far = make_port(1), make_port(2)
    command = [
        sys.executable,
        "-m",
        "fanin.p4switch",
        "-i",
        "1@s1",
        "-i",
        "2@s2",
        "--pcap",
        folder,
        "--no-grpc",
    ]
    Path(folder, "s1_in.pcap").write_bytes(b"of an earlier run")
    switch = subprocess.Popen([*command, program], stdout=subprocess.PIPE, text=True)
    try:
        assert switch.stdout is not None
        assert "ready" in switch.stdout.readline()
        for packet in PACKETS:
            near.send(packet)
            assert far.recv(2000) == packet
        print(json.dumps({path.name: captured(path) for path in sorted(Path(folder).iterdir())}))
    finally:
        switch.send_signal(signal.SIGTERM)
        switch.communicate()


if __name__ == "__main__":
    main(*sys.argv[1:])
