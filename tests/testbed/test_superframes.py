"""A network tries whether superframes pass between hosts and switches; if not, it does without."""

import json
import re
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[[str], subprocess.CompletedProcess[str]]

REFUSAL = """
import subprocess
from in_sandbox import *
from fanin.testbed import superframes

def refusal(*spoil):
    '''What the probe says when these commands have changed its interfaces.'''
    whole = superframes._try_both_ways
    def spoilt():
        for command in spoil:
            subprocess.run(command, shell=True, check=True, stdout=subprocess.DEVNULL)
        return whole()
    superframes._try_both_ways = spoilt
    try:
        print(superframes.refusal())
    finally:
        superframes._try_both_ways = whole
"""
DROP = (
    "tc qdisc add dev {0} clsact && tc filter add dev {0} {1} protocol all prio 1 bpf da bytecode '1,6 0 0 2'"
)


@pytest.fixture
def on_old_kernel(old_kernel: dict[str, str], environment: dict[str, str]) -> None:
    """Let `run` run scripts as on an old kernel."""
    environment |= old_kernel


# 5.10 itself takes them apart, before packet sockets refuse them.
FOUND_OUT = r"(splits UDP superframes from hosts to switches|from hosts to switches \(Invalid argument\))"


def lines(run: Run, script: str) -> list[str]:
    done = run(REFUSAL + script)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.few(1)
@pytest.mark.live
def test_what_takes_superframes_apart_or_loses_them_is_named(run: Run) -> None:
    expected = {
        "ethtool -K probe0 tx-udp-segmentation off": "splits UDP superframes from hosts to switches",
        "ethtool -K probe1 tx-udp-segmentation off": "splits UDP superframes from switches to hosts",
        "ip link set probe1 down": "loses UDP superframes from hosts to switches (Network is down)",
        DROP.format("probe0", "egress"): "loses UDP superframes from hosts to switches (nothing arrives)",
        DROP.format("probe0", "ingress"): "loses UDP superframes from switches to hosts (nothing arrives)",
    }
    unspoilt, *seen = lines(run, "\n".join(["refusal()", *(f"refusal({spoil!r})" for spoil in expected)]))
    if unspoilt != "None":
        pytest.skip(unspoilt)
    assert [line.split(maxsplit=2)[2] for line in seen] == list(expected.values())


@pytest.mark.live
@pytest.mark.usefixtures("on_old_kernel")
def test_a_kernel_whose_packet_sockets_know_no_superframes_of_udp_is_found_out(run: Run) -> None:
    (found,) = lines(run, "refusal()")
    assert re.search(FOUND_OUT, found)


@pytest.mark.live
def test_nothing_of_the_probe_is_left(run: Run) -> None:
    before, after = lines(
        run,
        """
import os, threading
def everything():
    return left()["interfaces"], os.readlink("/proc/thread-self/ns/net"), sorted(os.listdir("/proc/self/fd"))
print(everything())
superframes.refusal()
print(everything())
""",
    )
    assert before == after


NETWORK = """
import json, logging, subprocess, sys
from in_sandbox import *
from fanin.testbed.switch_processes import P4Switch

class Offloading(Tiny):
    offload = True

def features(network, host):
    look = ["ethtool", "-k", f"{host}-eth0"]
    said = network.host_popen(host, look, stdout=subprocess.PIPE, text=True).communicate()[0]
    found = dict(line.removesuffix(" [fixed]").strip().split(": ") for line in said.splitlines()[1:])
    return found["tx-udp-segmentation"], found["tx-tcp-segmentation"]

def build(offload=True):
    topology = leaf_spine(spines=0, leaves=1, hosts_per_leaf=2, offload=offload)
    with MininetNetwork(topology, Offloading(topology), LOGS) as network:
        print(json.dumps([network.superframes, *features(network, "h1")]))
"""


def built(run: Run, script: str) -> tuple[list[list[object]], str]:
    done = run(NETWORK + script)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.few(1)
@pytest.mark.live
@pytest.mark.usefixtures("on_old_kernel")
def test_a_network_on_such_a_kernel_carries_plain_frames_and_says_what_that_costs_once(run: Run) -> None:
    seen, said = built(run, "build(); build()")
    assert seen == [[False, "off", "on"]] * 2
    (line,) = said.splitlines()
    assert re.search(FOUND_OUT, line)
    assert "datagrams cross the network one by one" in line


@pytest.mark.few(1)
@pytest.mark.live
def test_a_network_that_is_to_do_without_superframes_does(run: Run) -> None:
    seen, said = built(run, "build(offload=False)")
    assert seen == [[False, "off", "on"]]
    assert said == ""
