"""simple_switch and simple_switch_grpc: BMv2's arguments and defaults, and the name of the process."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.bmv2_commands.install import install
from fanin.bmv2_commands.simple_switch import main, switch_arguments
from fanin.native import libc
from fanin.p4switch.options import Options, parse
from fanin.testbed.patience import setting
from tests.free_ports import free_port


def options(command: str, line: str) -> Options:
    return parse(switch_arguments(command, line.split()))


def test_the_tutorials_command_line():
    line = "-i 1@s1-eth1 -i 2@s1-eth2 --pcap /x/pcaps --nanolog ipc:///tmp/bm-0-log.ipc --device-id 0 build/basic.json"
    more = " --log-console --thrift-port 9093 -- --grpc-server-addr 0.0.0.0:50051 --cpu-port 510 --priority-queues 8"
    found = options("simple_switch_grpc", line + more)
    assert found.program == Path("build/basic.json")
    assert found.ports == {1: "s1-eth1", 2: "s1-eth2"}
    assert found.pcap == Path("/x/pcaps")
    assert (found.grpc_address, found.cpu_port, found.priority_queues) == ("0.0.0.0:50051", 510, 8)
    assert found.thrift_port == 9093


def test_p4_utils_command_line():
    line = (
        "-i 1@s1-eth1 --pcap=./pcap --thrift-port 9090 --nanolog ipc:///x --device-id 1 s1.json --log-console"
    )
    found = options("simple_switch", line)
    assert (found.pcap, found.thrift_port, found.device_id) == (Path("pcap"), 9090, 1)
    assert found.grpc_address is None


def test_p4_utils_learns_that_no_program_was_set_by_p4runtime():
    assert not options("simple_switch_grpc", "p.json").empty_config


def test_pcap_needs_no_folder():
    assert options("simple_switch", "--pcap -i 1@a p.json").pcap == Path()
    found = options("simple_switch", "-i 1@a --pcap p.json")
    assert (found.pcap, found.program) == (Path(), Path("p.json"))


def test_simple_switch_has_thrift_at_bmv2_s_port():
    assert options("simple_switch", "p.json").thrift_port == 9090


def test_bmv2_appends_a_suffix_to_log_files():
    assert options("simple_switch_grpc", "--log-file ss-log --no-p4").log_file == Path("ss-log.txt")
    assert options("simple_switch_grpc", "--log-file=ss-log --no-p4").log_file == Path("ss-log.txt")


@pytest.mark.parametrize("command", ["simple_switch", "simple_switch_grpc"])
def test_p4_source_is_refused_with_the_command_that_compiles_it(command, capsys, monkeypatch):
    keep_the_name_of_this_process(monkeypatch)
    assert main(command, ["-i", "1@nowhere0", "labs/basic.p4"]) == 2
    compile_it = (
        "compile it with p4c-bm2-ss -o labs/basic.json labs/basic.p4, and give labs/basic.json to the switch"
    )
    assert capsys.readouterr().err == f"{command}: labs/basic.p4 is P4 source: {compile_it}\n"


def test_messages_begin_with_the_command(monkeypatch, capsys):
    keep_the_name_of_this_process(monkeypatch)
    assert main("simple_switch", ["--nanolog", "ipc:///x", "-i", "1@nowhere0", "basic.json"]) == 1
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("simple_switch: warning: --nanolog has no effect on fanin's switch: ")
    assert error.startswith("simple_switch: port 1: this network namespace has no interface nowhere0")


def keep_the_name_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in ("set_process_name", "set_command_line"):
        monkeypatch.setattr(libc, function, lambda _: None)


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    install(tmp_path)
    thrift, grpc = free_port(), free_port()
    started = subprocess.Popen(
        [
            tmp_path / "simple_switch_grpc",
            "--no-p4",
            f"--thrift-port={thrift}",
            "--",
            f"--grpc-server-addr=127.0.0.1:{grpc}",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        assert "ready" in started.stdout.readline()
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        started.communicate(timeout=30 * setting())


@pytest.mark.slow
def test_ps_and_pkill_find_the_process_by_its_command(switch):
    status = Path(f"/proc/{switch.pid}")
    assert (status / "comm").read_text() == "simple_switch_g\n"  # the kernel keeps 15 bytes, as BMv2's
    line = (status / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    assert line[:2] == [b"simple_switch_grpc", b"--no-p4"]
    listed = subprocess.run(
        ["ps", "-o", "args=", "-p", str(switch.pid)], capture_output=True, text=True, check=True
    )
    assert listed.stdout.startswith("simple_switch_grpc --no-p4")
