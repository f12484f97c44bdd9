"""Switches that were started by hand: how they are named, and how they are found. test_by_hand.py has a real one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from fanin.testbed.own_switches import OwnSwitch, own_switches
from fanin.testbed.running import find_switch
from fanin.topologies.errors import NetworkError

# A process with the command line of a switch, which waits until its input is closed.
WAITS = """
import sys
from fanin.native import libc
libc.set_command_line(sys.argv[1:])
print(flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started(request: pytest.FixtureRequest) -> Iterator[OwnSwitch]:
    """A process with the command line that the test gives, as it is found."""
    environment = {name: value for name, value in os.environ.items() if name != "FANIN_RUN"}
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, *request.param],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield next(switch for switch in own_switches() if switch.process == process.pid)


SWITCH = [
    "simple_switch_grpc",
    "-i",
    "1@veth0",
    "p.json",
    "--device-id",
    "7",
    "--",
    "--grpc-server-addr",
    "0.0.0.0:9",
]


@pytest.mark.parametrize("started", [SWITCH], indirect=True)
def test_it_is_described_by_its_command_line(started: OwnSwitch) -> None:
    assert (started.device_id, started.address, started.ports) == (7, "127.0.0.1:9", {1: "veth0"})


OF_TUTORIALS = [
    "simple_switch_grpc",
    "-i",
    "1@s1-eth1",
    "-i",
    "2@s1-eth2",
    "--pcap",
    "pcaps",
    "--nanolog",
    "ipc:///tmp/bm-0-log.ipc",
    "--device-id",
    "0",
    "build/basic.json",
    "--log-console",
    "--thrift-port",
    "9090",
    "--",
    "--grpc-server-addr",
    "0.0.0.0:50051",
]


@pytest.mark.parametrize("started", [OF_TUTORIALS], indirect=True)
def test_one_of_p4lang_tutorials_is_found(started: OwnSwitch) -> None:
    assert (started.device_id, started.address, started.thrift_port) == (0, "127.0.0.1:50051", 9090)
    assert started.ports == {1: "s1-eth1", 2: "s1-eth2"}


@pytest.mark.parametrize("started", [SWITCH], indirect=True)
@pytest.mark.parametrize("name", ["127.0.0.1:9", "localhost:9"])
def test_an_address_finds_its_device_id(started: OwnSwitch, name: str) -> None:
    assert find_switch(name).device_id == started.device_id
    assert find_switch(f"{name}/3").device_id == 3


@pytest.mark.parametrize("started", [["simple_switch", "p.json", "--thrift-port", "9091"]], indirect=True)
def test_simple_switch_is_asked_over_thrift(started: OwnSwitch) -> None:
    with pytest.raises(NetworkError, match="has no P4Runtime: type simple_switch_CLI --thrift-port 9091"):
        find_switch(str(started.process))


def test_an_address_on_another_machine_has_the_device_id_0_unless_one_is_given() -> None:
    assert find_switch("192.0.2.1:9559").device_id == 0
    assert find_switch("192.0.2.1:9559/4").device_id == 4


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("1", "process 1 is no switch that was started by hand; there are "),
        ("127.0.0.1:", "127.0.0.1:: write HOST:PORT"),
        ("127.0.0.1:9559/x", "127.0.0.1:9559/x: write HOST:PORT, or HOST:PORT/N for the device id N"),
    ],
)
def test_what_is_no_switch_is_refused(name: str, why: str) -> None:
    with pytest.raises(NetworkError, match=why):
        find_switch(name)
