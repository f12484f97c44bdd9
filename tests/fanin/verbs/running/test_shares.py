"""In-network all-reduces and a kernel's TCP on one link: neither keeps the other from going on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fanin.network import TIMEOUT, Up

TOPOLOGY = """
[leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 2
rate = "1 Gb/s"
uplink_rate = "20 Mb/s"
"""
WORKER = """
import json, numpy, workers
def all_reduces(count):
    for _ in range(count):
        comm.all_reduce(numpy.ones(50_000, numpy.float32))
    return comm.statistics
comm = workers.join(3, timeout=60)
"""
# What TCP brings is taken, and counted, from the first all-reduce on until the last; before, a buffer of it waits.
COUNTING = """
import socket, threading
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
server.bind(("", 5001))
server.listen()
print("listens", flush=True)
size = 0
def receive():
    global size
    connection, _ = server.accept()
    while data := connection.recv(1 << 16):
        size += len(data)
"""
RECEIVER = (
    COUNTING
    + WORKER
    + """
before = all_reduces(1).bytes_sent
threading.Thread(target=receive, daemon=True).start()
after = all_reduces(20)
print(json.dumps({"tcp": size, "in_network": after.bytes_sent - before}))
"""
)
SENDER = """
import socket
connection = socket.create_connection(("10.1.0.1", 5001))
while True:
    connection.sendall(bytes(1 << 14))
"""


@pytest.mark.few(0)
@pytest.mark.live
@pytest.mark.slow
def test_tcp_is_not_starved_where_uplinks_are_shared(tmp_path: Path) -> None:
    """From h4 to h1 over both uplinks, while h1, h2 and h3 add up."""
    topology = tmp_path / "topology.toml"
    topology.write_text(TOPOLOGY)
    with Up(tmp_path, "--topology", topology) as up:
        receiver = up.start("h1", RECEIVER)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "listens\n"
        sender = up.start("h4", SENDER)
        others = [up.start(host, WORKER + "all_reduces(21)") for host in ("h2", "h3")]
        said, errors = receiver.communicate(timeout=TIMEOUT)
        assert receiver.returncode == 0, errors
        for process in (sender, *others):
            process.communicate(timeout=TIMEOUT)
        assert [other.returncode for other in others] == [0, 0]
        up.end()
    sent = json.loads(said)
    assert sent["tcp"] > sent["in_network"] / 2
