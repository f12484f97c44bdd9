"""Run by test_cli.py in a network namespace of its own: a switch with log_msg.p4 gets a packet on lo.

Arguments: the program's JSON, then options of the switch. It writes to `stdout` and `stderr` in this folder, and ends
when the values of the packet are in a file of this folder.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

PACKET = bytes([1, 2, 0, 10, 0xFB, *range(1, 17), 0])
WRITTEN = "what=1 i=-5"


def in_a_file(text: str) -> bool:
    return any(text in path.read_text() for path in Path().iterdir())


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    program, *options = sys.argv[1:]
    command = [sys.executable, "-m", "fanin.p4switch", "--no-grpc", "-i", "1@lo", *options, program]
    with Path("stdout").open("w") as out, Path("stderr").open("w") as err:
        switch = subprocess.Popen(command, stdout=out, stderr=err)
    try:
        while not in_a_file("ready"):
            time.sleep(0.02)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("lo", 0))
            sender.send(PACKET)
        while not in_a_file(WRITTEN):
            time.sleep(0.02)
    finally:
        switch.terminate()
        switch.wait()


if __name__ == "__main__":
    main()
