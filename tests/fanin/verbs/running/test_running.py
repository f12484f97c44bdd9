"""Looking into a network that is up, one for all tests of this file."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from scapy.utils import RawPcapReader

from fanin.verbs.running import ps
from tests.fanin.command import RUN
from tests.fanin.network import SEND, TIMEOUT, Up

ROOT = Path(__file__).parents[4]

pytestmark = pytest.mark.live

STAY = "import signal; print('here', flush=True); signal.pause()"


@pytest.fixture
def lines(up: Up, fanin: Any) -> Any:
    """`lines(*arguments)`: what the command prints with --json."""

    def run(*arguments: str) -> list[dict[str, Any]]:
        done = fanin(*arguments, "--json", **up.environment)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def networks(lines: Any) -> list[Any]:
    """Return what `fanin ps` lists, without switches that other tests have started by hand."""
    return [each for each in lines("ps") if "switches" in each]


def test_networks_are_listed_with_what_runs_on_their_hosts(up: Up, fanin: Any, lines: Any) -> None:
    staying = up.start("h1", STAY, "a worker")
    assert staying.stdout is not None
    assert staying.stdout.readline() == "here\n"
    try:
        [network] = networks(lines)
        shown = fanin("ps", **up.environment).stdout
    finally:
        staying.kill()
        staying.communicate(timeout=TIMEOUT)
    assert network["process"] == up.process.pid
    assert 0 < network["seconds"] < 24 * 3600
    assert network["command"][-2:] == ["--logs", str(up.folder / "logs")]
    assert network["switches"] == {
        "leaf1": {
            "device_id": 1,
            "grpc_port": 9559,
            "engine": "embedded",
            "neighbours": {"1": "h1", "2": "h2"},
        }
    }
    h1, h2 = network["hosts"]["h1"], network["hosts"]["h2"]
    assert (h1["ip"], h2) == ("10.1.0.1", {"ip": "10.1.0.2", "processes": []})
    [process] = h1["processes"]
    assert (process["process"], process["command"][-1]) == (staying.pid, "a worker")
    assert f"process {up.process.pid}, up for 0:" in shown
    assert f"{staying.pid} {sys.executable} -c" in shown


def test_without_networks_and_switches_there_is_nothing_to_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ps, "running_networks", list)
    monkeypatch.setattr(ps, "own_switches", list)
    ps.ps()
    assert capsys.readouterr().out == "No network is running; start one in another terminal: fanin up\n"
    ps.ps(as_json=True)
    assert capsys.readouterr().out == ""


def test_tables_are_told_by_name(up: Up, fanin: Any, lines: Any) -> None:
    routes = lines("tables", "leaf1", "ipv4_lpm")
    assert {route["table"] for route in routes} == {"ingress.forwarding.ipv4_lpm"}
    to_h1 = {"match": {"hdr.ipv4.destination": "10.1.0.1/32"}, "kind": "entry", "priority": 0}
    to_h1 |= {"action": "ingress.forwarding.forward", "params": {"mac": "02:00:0a:01:00:01", "port": 1}}
    assert [route for route in routes if route.items() >= to_h1.items()]
    assert [route["action"] for route in routes if route["kind"] == "default"] == [
        "ingress.forwarding.no_route"
    ]
    shown = fanin("tables", "leaf1", **up.environment).stdout
    rows = [line.split(maxsplit=1) for line in shown.splitlines()]
    route = "ingress.forwarding.forward(mac=02:00:0a:01:00:01, port=1)"
    assert route in [row[1].strip() for row in rows if row and row[0] == "hdr.ipv4.destination=10.1.0.1/32"]
    assert "everything else" in shown
    refused = fanin("tables", "leaf1", "routes", **up.environment)
    assert "leaf1 has no table routes with entries; tables with entries are egress." in refused.stderr


def test_counters_are_told_with_the_names_of_reasons_and_neighbours(up: Up, fanin: Any, lines: Any) -> None:
    def counted() -> dict[tuple[str, str], int]:
        return {(cell["counter"], cell["name"]): cell["packets"] for cell in lines("counters", "leaf1")}

    before = counted()
    unknown = SEND.replace("10.1.0.2", "10.9.0.9")
    for script in (SEND, unknown):
        assert fanin("exec", "h1", sys.executable, "-c", script, **up.environment).returncode == 0
    end = time.monotonic() + TIMEOUT
    wanted = {("ingress.port_in", "h1"): 2, ("egress.port_out", "h2"): 1, ("ingress.drops", "NO_ROUTE"): 1}
    while any(counted().get(key, 0) - before.get(key, 0) < more for key, more in wanted.items()):
        assert time.monotonic() < end
    after = counted()
    assert {key: after[key] - before.get(key, 0) for key in wanted} == wanted
    shown = fanin("counters", "leaf1", **up.environment).stdout
    assert "ingress.drops" in shown
    assert "NO_ROUTE" in shown


def test_all_reduces_are_timed_and_checked(up: Up, fanin: Any, lines: Any) -> None:
    small, large = lines("allreduce", "--sizes", "1000 elements,64 kB", "--repetitions", "3")
    assert (small["bytes"], large["bytes"]) == (4000, 64000)
    for outcome in (small, large):
        assert (outcome["workers"], outcome["wrong"], len(outcome["seconds"])) == (2, 0, 3)
        assert all(seconds > 0 for seconds in outcome["seconds"])
    shown = fanin("allreduce", "--sizes", "64 kB", "--repetitions", "1", **up.environment)
    heading, _, row = shown.stdout.splitlines()  # each on one line, for scripts that read nccl-tests' columns
    titles = "size B count type redop time us algbw GB/s busbw GB/s #wrong least us most us resent"
    assert " ".join(heading.split()) == titles
    size, count, kind, redop, time, algbw, busbw, wrong, least, most, _ = row.split()
    assert (size, count, kind, redop, wrong) == ("64,000", "16,000", "float", "sum", "0")
    assert time == least == most  # of one repetition
    assert float(algbw) == float(busbw)  # with two ranks: 2 (n - 1) / n is 1
    assert float(algbw) == pytest.approx(64 / float(time.replace(",", "")), abs=1e-4)


@pytest.mark.parametrize(
    "command",
    [
        "allreduce --sizes '4 kB,1 MB' --repetitions 1",
        "bench collectives --sizes '64 KiB' --repetitions 1",
        "counters leaf1",
        "jobs",
        "link leaf1 h1",
        "ps",
        "tables leaf1",
        "top --once",
    ],
)
def test_the_tables_of_a_network_fit(up: Up, fanin: Any, command: str) -> None:
    done = fanin(*shlex.split(command), **(up.environment | {"COLUMNS": "80"}))
    assert done.returncode == 0, done.stderr
    # The line that names the process of a network is no row of a table.
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith("process ")) <= 80


def test_collectives_have_the_columns_of_nccl_tests(up: Up, fanin: Any) -> None:
    operations = "all-reduce,reduce-scatter,all-gather,broadcast"
    arguments = [
        "bench",
        "collectives",
        "--operations",
        operations,
        "--sizes",
        "64 KiB",
        "--repetitions",
        "2",
    ]
    done = fanin(*arguments, "--json", **up.environment)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ways = [(operation, way) for operation in operations.split(",") for way in ("in-network", "ring")]
    assert [(row["operation"], row["algorithm"]) for row in rows] == ways
    for row in rows:
        assert (row["bytes"], row["workers"], row["wrong"], len(row["seconds"])) == (65536, 2, 0, 2)
        factor = {"reduce-scatter": 0.5, "all-gather": 0.5}.get(row["operation"], 1.0)
        assert row["bus_bytes_per_second"] == pytest.approx(factor * row["algorithm_bytes_per_second"])


@pytest.mark.parametrize(
    "arguments", [("tables", "leaf1"), ("link", "leaf1"), ("allreduce", "--sizes", "4 kB")]
)
def test_what_lies_in_the_current_folder_does_not_matter(
    up: Up, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    for name in ("controller", "experiments", "p4switch", "workers", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, *arguments],
        cwd=tmp_path,
        env=os.environ | up.environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_all_reduces_fail_with_what_their_workers_say(up: Up, fanin: Any) -> None:
    alone = "import workers; job = workers.join(1); "
    joined = up.start("h1", alone + STAY)
    assert joined.stdout is not None
    assert joined.stdout.readline() == "here\n"
    try:
        done = fanin("allreduce", "--sizes", "4 kB", **up.environment)
    finally:
        joined.kill()
        joined.communicate()
    assert done.returncode == 1
    assert f"h1: h1 has a worker already, process {joined.pid}" in done.stderr


def test_ctrl_c_ends_all_reduces_and_their_workers(up: Up, lines: Any) -> None:
    running = up.fanin("allreduce", "--json", "--sizes", "4 kB,20 MB", "--repetitions", "20", stderr=None)
    assert running.stdout is not None
    with running.stdout:
        assert json.loads(running.stdout.readline())["bytes"] == 4000
        running.send_signal(signal.SIGINT)  # in the middle of the larger one
        assert running.wait(TIMEOUT) == 130
    [network] = networks(lines)
    assert [host["processes"] for host in network["hosts"].values()] == [[], []]


def test_a_worker_that_is_killed_is_named(up: Up, lines: Any) -> None:
    running = up.fanin("allreduce", "--json", "--sizes", "4 kB,20 MB", "--repetitions", "20")
    assert running.stdout is not None
    assert json.loads(running.stdout.readline())["bytes"] == 4000
    [network] = networks(lines)
    [worker] = network["hosts"]["h1"]["processes"]
    os.kill(worker["process"], signal.SIGKILL)
    _, said = running.communicate(timeout=TIMEOUT)
    assert running.returncode == 1
    assert "fanin allreduce: the all-reduce failed:\n  h1: killed by SIGKILL\n" in said


def test_a_network_that_there_is_not_is_named_with_those_that_there_are(up: Up, fanin: Any) -> None:
    done = fanin("allreduce", "--network", "1", **up.environment)
    said = f"fanin allreduce: process 1 runs no network; there are --network {up.process.pid}\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert fanin("allreduce", **up.environment, FANIN_NETWORK="1").stderr == said


def test_a_network_that_the_environment_does_not_name_by_its_process_is_an_error(up: Up, fanin: Any) -> None:
    done = fanin("tables", "leaf1", **up.environment, FANIN_NETWORK="mine")
    said = "FANIN_NETWORK: mine is no process id; `fanin ps` lists those of networks"
    assert (done.returncode, done.stderr) == (1, f"fanin tables: {said}\n")


def test_sizes_need_a_unit(fanin: Any) -> None:
    done = fanin("allreduce", "--sizes", "64 kB,1000")
    assert done.returncode == 2
    assert "1000: write a number and its unit, such as '4 MB'" in done.stderr


def test_without_a_command_there_is_a_shell_whose_prompt_names_the_host(up: Up, tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("PS1='mine$ '; answer=42\n")
    terminal, end = os.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-c", RUN, "exec", "h1"],
        stdin=end,
        stdout=end,
        stderr=end,
        env=os.environ | up.environment | {"HOME": str(tmp_path), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(end)
    os.write(terminal, b"echo the answer of $FANIN_HOST is $answer\nexit\n")
    said = b""
    with suppress(OSError):  # which tells that the other end is closed
        while more := os.read(terminal, 1 << 12):
            said += more
    os.close(terminal)
    assert shell.wait(TIMEOUT) == 0
    assert b"h1:" in said
    assert b"the answer of h1 is 42" in said
    assert b"mine$" not in said


RECEIVE = """
import socket
s = socket.socket(type=socket.SOCK_DGRAM)
s.bind(("10.1.0.2", 7007))
print("here", flush=True)
print(s.recvfrom(100))
"""


def test_a_packet_is_sent_and_traced(up: Up, fanin: Any, lines: Any) -> None:
    receiving = up.start("h2", RECEIVE)
    assert receiving.stdout is not None
    assert receiving.stdout.readline() == "here\n"
    layers = "Ether()/IP(dst='10.1.0.2')/UDP(sport=6006, dport=7007)/'hello'"
    sent = fanin("packet", "leaf1", "--layers", layers, **up.environment)
    assert sent.returncode == 0, sent.stderr
    assert "entry 1: hdr.ipv4.destination=10.1.0.2/32" in sent.stdout
    assert sent.stdout.endswith("=> 1 packet out: port 2 (47 bytes)\n")
    assert receiving.communicate(timeout=TIMEOUT)[0] == "(b'hello', ('10.1.0.1', 6006))\n"
    [told] = lines("packet", "leaf1", "--port", "2", "--hex", "0x" + "00" * 20)
    assert (told["port"], told["packet"]) == (2, "00" * 20)
    [drop] = [
        event for event in told["events"] if event["event"] == "Access" and event["name"] == "ingress.drops"
    ]
    assert drop["constant"] == "REASON_NOT_IP"


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (("--hex", "00"), 1, "leaf1: the switch has no port 3; there are 1, 2"),
        (("--hex", "0g", "--port", "1"), 2, "0g is not a packet: write two hexadecimal digits"),
        (("--layers", "Ether(", "--port", "1"), 2, "Ether(: write layers with fields, divided by /"),
        ((), 2, "give the packet, with either --hex or --layers"),
    ],
)
def test_what_cannot_be_sent_is_said(
    up: Up, fanin: Any, arguments: tuple[str, ...], status: int, complaint: str
) -> None:
    done = fanin("packet", "leaf1", "--port", "3", *arguments, **up.environment)
    assert (done.returncode, done.stderr.startswith(f"fanin packet: {complaint}")) == (status, True), (
        done.stderr
    )


def test_captures_can_be_read_while_the_network_is_up(up: Up, fanin: Any) -> None:
    assert (
        fanin(
            "exec", "h1", sys.executable, "-c", SEND.replace("here", "captured"), **up.environment
        ).returncode
        == 0
    )
    capture = up.folder / "pcap" / "leaf1-eth2.pcap"
    end = time.monotonic() + TIMEOUT

    def captured() -> bool:
        with RawPcapReader(str(capture)) as packets:  # others on this network have filled it
            return any(packet.endswith(b"fanin was captured") for packet, _ in packets)

    while not captured():
        assert time.monotonic() < end


@pytest.mark.parametrize("verb", ["tables", "counters"])
def test_a_host_has_neither_tables_nor_counters(up: Up, fanin: Any, verb: str) -> None:
    done = fanin(verb, "h1", **up.environment)
    assert (done.returncode, done.stderr) == (1, f"fanin {verb}: h1 is a host; switches are leaf1\n")
