"""`fanin up` keeps a network up and grants leases; `fanin exec` and `fanin shell` get into it; captures work."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import numpy
import pytest
from scapy.layers.inet import UDP
from scapy.utils import rdpcap

from fanin import shell_environment
from tests.fanin.network import RUN, SEND, TIMEOUT

pytestmark = pytest.mark.live

# What the manual shows, its values from the command line.
JOIN = """
import sys, numpy, workers
with workers.join() as job:
    print(job.config.lease.id, job.all_reduce(numpy.full(4, (job.rank + 1) * float(sys.argv[1]), numpy.float32)))
"""
BY_HAND = """
import sys, numpy
from workers import *
lease = Lease(int(sys.argv[1]), int(sys.argv[2]), 2, 16, first_chunk=int(sys.argv[3]))
here = f"10.1.0.{lease.rank + 1}", 0xBEE0
with InNetworkAllReduce(InNetworkConfig(lease, here, ("10.1.0.254", 0xBEE0), recovery=Recovery(give_up=2.0))) as job:
    try:
        print(job.all_reduce(numpy.ones(4, numpy.float32)))
    except StallError:
        print("stalled")
"""
SESSION = """
route = table_entry["ingress.forwarding.ipv4_lpm"](action="ingress.forwarding.no_route")
route.match["hdr.ipv4.destination"] = "10.9.0.0/16"
before = len(list(table_entry["ingress.forwarding.ipv4_lpm"].read()))
route.insert()
print("routes more:", len(list(table_entry["ingress.forwarding.ipv4_lpm"].read())) - before)
"""


def test_it_says_what_is_where(up, fanin):
    for text in ("leaf1", "127.0.0.1:9559", "10.1.0.2"):
        assert text in up.said
    listed = fanin("clean", **up.environment).stdout
    assert f"process {up.process.pid}, which goes on" in listed


def test_each_run_of_a_script_gets_its_own_sums(up):
    leases = set()
    for scale in (1, 100, -7.5):
        running = [up.start(host, JOIN, scale) for host in ("h1", "h2")]
        said = {process.communicate(timeout=TIMEOUT)[0].strip() for process in running}
        (line,) = said
        lease, _, total = line.partition(" ")
        assert total == str(numpy.full(4, 3 * scale, numpy.float32))
        leases.add(lease)
    assert len(leases) == 3


def test_a_lease_that_was_not_granted_to_this_run_stalls_and_never_gives_a_sum(up):
    running = [up.start(host, JOIN, 1) for host in ("h1", "h2")]
    said = running[0].communicate(timeout=TIMEOUT)[0]
    running[1].communicate(timeout=TIMEOUT)
    for lease in (said.split()[0], 1):
        running = [up.start(f"h{rank + 1}", BY_HAND, lease, rank, 0) for rank in (0, 1)]
        assert [process.communicate(timeout=TIMEOUT)[0] for process in running] == ["stalled\n"] * 2


def test_a_second_worker_on_a_host_is_told_which_process_is_the_first(up):
    first = up.start("h1", JOIN, 1)
    second = up.start("h1", JOIN, 1)
    readable = select.select([first.stderr, second.stderr], [], [], TIMEOUT)[0]
    (refused,) = (process for process in (first, second) if process.stderr in readable)
    waiting = second if refused is first else first
    assert f"h1 has a worker already, process {waiting.pid}" in refused.communicate(timeout=TIMEOUT)[1]
    other = up.start("h2", JOIN, 1)
    assert other.communicate(timeout=TIMEOUT)[0].split()[1:] == ["[3.", "3.", "3.", "3.]"]
    waiting.communicate(timeout=TIMEOUT)


def test_nodes_that_are_not_there_are_named(up, fanin):
    assert "there are h1, h2, leaf1" in fanin("exec", "h9", "true", **up.environment).stderr
    assert "h1 is a host" in fanin("shell", "h1", **up.environment).stderr


def test_without_a_network_it_says_how_to_start_one(fanin, tmp_path):
    done = fanin("shell", "leaf1", TMPDIR=str(tmp_path))
    assert done.returncode == 1
    assert "fanin up" in done.stderr


@pytest.mark.skipif(
    not shell_environment.ready(),
    reason="p4runtime-shell is not set up; the first `fanin shell` does it",
)
def test_a_session_of_p4runtime_shell(up):
    done = subprocess.run(
        [sys.executable, "-c", RUN, "shell", "leaf1"],
        input=SESSION,
        env=os.environ | up.environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert "routes more: 1" in done.stdout


def test_it_leaves_nothing_but_captures_of_what_was_sent(up, fanin):
    done = fanin("exec", "h1", sys.executable, "-c", SEND, **up.environment)
    assert done.returncode == 0, done.stderr
    assert "nothing is left behind" in up.end()
    assert not list(up.folder.glob("fanin-run-*"))
    for port in ("leaf1-eth1", "leaf1-eth2"):
        payloads = [
            bytes(packet[UDP].payload)
            for packet in rdpcap(str(up.folder / "pcap" / f"{port}.pcap"))
            if UDP in packet and packet[UDP].dport == 5005
        ]
        assert payloads == [b"fanin was here"]
