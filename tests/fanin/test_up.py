"""`fanin up` keeps a network up; `fanin exec` and `fanin shell` get into it; captures show what crossed its ports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from scapy.layers.inet import UDP
from scapy.utils import rdpcap

from fanin import shell_environment

pytestmark = pytest.mark.live

RUN = "import sys; from fanin.cli import main; sys.argv[0] = 'fanin'; main()"
SEND = "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'fanin was here', ('10.1.0.2', 5005))"
SESSION = """
route = table_entry["ingress.forwarding.ipv4_lpm"](action="ingress.forwarding.no_route")
route.match["hdr.ipv4.destination"] = "10.9.0.0/16"
before = len(list(table_entry["ingress.forwarding.ipv4_lpm"].read()))
route.insert()
print("routes more:", len(list(table_entry["ingress.forwarding.ipv4_lpm"].read())) - before)
"""


class Up:
    """A running `fanin up` of one leaf and two hosts, its captures in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"TMPDIR": str(folder)}
        command = ["up", "--workers", "2", "--leaves", "1", "--spines", "0"]
        files = ["--pcap", str(folder / "pcap"), "--logs", str(folder / "logs")]
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, *command, *files],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | self.environment,
        )
        assert self.process.stdout is not None
        self.said = ""
        for line in self.process.stdout:
            self.said += line
            if "fanin exec" in line:
                return
        raise AssertionError(self.process.stderr.read() if self.process.stderr else "")

    def end(self) -> str:
        """Ctrl-C; what it says."""
        self.process.send_signal(signal.SIGINT)
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        return output


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    network = Up(tmp_path)
    yield network
    network.process.kill()
    network.process.communicate()


def test_it_says_what_is_where_and_leaves_nothing(up, fanin):
    for text in ("leaf1", "127.0.0.1:9559", "10.1.0.2", "Lease 1"):
        assert text in up.said
    listed = fanin("clean", **up.environment).stdout
    assert f"process {up.process.pid}, which goes on" in listed
    assert "nothing is left behind" in up.end()
    assert not list(up.folder.glob("fanin-run-*"))


def test_a_command_on_a_host_and_the_captures_of_its_packet(up, fanin):
    done = fanin("exec", "h1", sys.executable, "-c", SEND, **up.environment)
    assert done.returncode == 0, done.stderr
    up.end()
    for port in ("leaf1-eth1", "leaf1-eth2"):
        payloads = [
            bytes(packet[UDP].payload)
            for packet in rdpcap(str(up.folder / "pcap" / f"{port}.pcap"))
            if UDP in packet
        ]
        assert payloads == [b"fanin was here"]


def test_nodes_that_are_not_there_are_named(up, fanin):
    assert "there are h1, h2, leaf1" in fanin("exec", "h9", "true", **up.environment).stderr
    assert "h1 is a host" in fanin("shell", "h1", **up.environment).stderr


def test_without_a_network_it_says_how_to_start_one(fanin, tmp_path):
    done = fanin("shell", "leaf1", TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "fanin up" in done.stderr


@pytest.mark.skipif(
    not shell_environment.PYTHON.exists(),
    reason="p4runtime-shell is not set up; the first `fanin shell` does it",
)
def test_a_session_of_p4runtime_shell(up):
    done = subprocess.run(
        [sys.executable, "-c", RUN, "shell", "leaf1"],
        input=SESSION,
        env=os.environ | up.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "routes more: 1" in done.stdout
