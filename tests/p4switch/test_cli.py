"""The command line is simple_switch_grpc's; the process says when it is ready and ends cleanly."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.__main__ import main
from fanin.p4switch.engine.links import Direction, LinkProperties
from fanin.p4switch.options import UsageError, parse
from fanin.p4switch.tls import TlsFiles
from fanin.testbed.patience import setting
from tests.testbed.conftest import require_readable

pytestmark = pytest.mark.slow

TIMEOUT = 30 * setting()


# Parsing


def test_the_usual_bmv2_command_line():
    general = "-i 1@s1-eth1 -i 2@s1-eth2 --thrift-port 9090 --device-id 3 build/x.json --log-console -L debug"
    target = "--grpc-server-addr 127.0.0.1:50051 --cpu-port 255 --drop-port 510"
    options = parse([*general.split(), "--", *target.split()])
    assert options.program == Path("build/x.json")
    assert options.ports == {1: "s1-eth1", 2: "s1-eth2"}
    assert options.device_id == 3
    assert options.grpc_address == "127.0.0.1:50051"
    assert (options.cpu_port, options.drop_port) == (255, 510)


def test_defaults_are_bmv2_s_but_for_who_may_reach_it():
    options = parse(["--no-p4"])
    assert options.program is None
    assert options.ports == {}
    assert options.device_id == 0
    assert options.grpc_address == "127.0.0.1:9559"
    assert (options.cpu_port, options.drop_port) == (None, 511)


def test_links_of_one_port_add_up():
    ports = ["-i", "1@veth0", "-i", "2@veth2"]
    texts = ["1:delay=1ms,loss=1%", "2:rate=10M", "1:ingress:loss=2%", "1:jitter=1us"]
    options = parse(["--no-p4", *ports, *(word for text in texts for word in ("--link", text))])
    assert options.links == {
        (1, Direction.EGRESS): LinkProperties(delay=1e-3, loss=0.01, jitter=1e-6),
        (2, Direction.EGRESS): LinkProperties(rate=1e7),
        (1, Direction.INGRESS): LinkProperties(loss=0.02),
    }


def test_tls_as_bmv2_has_it():
    files = ["--grpc-server-cert", "c.crt", "--grpc-server-key", "c.key", "--grpc-server-cacert", "ca.crt"]
    tls = ["--no-p4", "--", "--grpc-server-ssl", *files]
    assert parse(["--no-p4"]).tls is None
    assert parse(tls).tls == TlsFiles(Path("c.crt"), Path("c.key"), None)
    mutual = parse([*tls, "--grpc-server-with-client-auth"])
    assert mutual.tls == TlsFiles(Path("c.crt"), Path("c.key"), Path("ca.crt"))


def test_certificates_of_both_sides_are_one_option():
    files = TlsFiles(Path("tls/server.crt"), Path("tls/server.key"), Path("tls/ca.crt"))
    assert parse(["--no-p4", "--", "--grpc-mutual-tls", "tls"]).tls == files


@pytest.mark.parametrize("interface", ["veth0", "x@veth0", "1@", "@veth0", "-1@veth0"])
def test_an_interface_needs_a_port_and_a_name(interface):
    with pytest.raises(UsageError, match=r"PORT@INTERFACE|-i"):
        parse(["--no-p4", "-i", interface])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("", "BMv2 JSON"),
        ("--no-p4 x.json", "either"),
        ("--no-p4 -i 1@a -i 1@b", "port 1 is a already"),
        ("--no-p4 -i 512@a", "up to 511"),
        ("--no-p4 -i 1@a --link 1:loss=2", "--link 1:loss=2: loss: 2 is not from 0 to 1"),
        ("--no-p4 -i 1@a --link 2:loss=0.1", "port 2 has no interface"),
        ("--no-p4 -i 255@a -- --cpu-port 255", "also given to the interface a"),
        ("--no-p4 -- --cpu-port 0", "not in 1..511"),
        ("--no-p4 -- --cpu-port 511", "both 511"),
        ("--no-p4 --log-console --log-file x", "either"),
        ("--no-p4 --log-level loud", "loud"),
        ("--no-p4 --unheard-of", "--unheard-of"),
        ("--no-p4 --debugger", "--debugger is not supported"),
        ("--no-p4 -- --grpc-server-ssl", "--grpc-server-ssl needs --grpc-server-cert"),
        ("--no-p4 -- --grpc-server-ssl --grpc-server-cert c", "--grpc-server-ssl needs --grpc-server-key"),
        ("--no-p4 -- --grpc-server-cert c", "--grpc-server-cert needs --grpc-server-ssl"),
        (
            "--no-p4 -- --grpc-server-ssl --grpc-server-cert c --grpc-server-key k --grpc-server-with-client-auth",
            "--grpc-server-ssl needs --grpc-server-cacert",
        ),
        (
            "--no-p4 -- --grpc-mutual-tls x --grpc-server-ssl",
            "--grpc-mutual-tls includes --grpc-server-ssl",
        ),
        (
            "--no-p4 -- --grpc-mutual-tls x --grpc-server-key k",
            "--grpc-mutual-tls includes --grpc-server-key",
        ),
        ("--no-p4 -- --priority-queues 9", "--priority-queues 9 is not in 1..8"),
        ("--no-p4 -- --priority-queues 0", "--priority-queues 0 is not in 1..8"),
        ("--no-p4 --device-id one", "one"),
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(arguments, why, capsys):
    assert main(arguments.split()) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "text"), [("-v", "fanin "), ("--version", "fanin "), ("--json-version", "2.")]
)
def test_versions_are_shown(option, text, capsys):
    with pytest.raises(SystemExit) as end:
        main([option])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(text)


def test_bmv2_logs_packets_unless_its_level_excludes_them():
    levels = {"trace": "TDIE", "debug": "DIE", "info": "", "warn": ""}
    for name, packets in levels.items():
        assert parse(["--no-p4", "--log-console", "-L", name]).packet_levels == packets
    assert parse(["--no-p4", "--log-console", "-L", "info", "--dump-packet-data", "9"]).packet_levels == "IE"
    assert parse(["--no-p4", "-L", "trace"]).packet_levels == ""


def test_help_names_the_target_options(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "--grpc-server-addr" in capsys.readouterr().out


# The process


@pytest.fixture
def start():
    """Starts switches; those still running in the end are killed."""
    processes = []

    def start(*arguments):
        command = [sys.executable, "-m", "fanin.p4switch", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def ready_line(process):
    readable, _, _ = select.select([process.stdout], [], [], TIMEOUT)
    assert readable, "the switch did not get ready"
    return process.stdout.readline()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_it_gets_ready_and_ends_cleanly(start, ending):
    process = start("--no-p4", "--device-id", "4", "--", "--grpc-server-addr", "127.0.0.1:0")
    words = ready_line(process).split()
    assert words[:2] == ["ready", "device_id=4"]
    host, port = words[2].removeprefix("grpc=").split(":")
    socket.create_connection((host, int(port)), timeout=TIMEOUT).close()
    process.send_signal(ending)
    out, err = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, out, err) == (0, "", "")
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=TIMEOUT)


def test_a_switch_does_not_load_what_it_does_not_use(start):
    process = start("--no-p4", "--thrift-port", "0", "--", "--grpc-server-addr", "127.0.0.1:0")
    ready_line(process)
    loaded = Path(f"/proc/{process.pid}/maps").read_text()
    assert "cygrpc" in loaded
    for unused in (
        "libcrypto",
        "_asyncio",
        "_bz2",
        "_uuid",
    ):  # the last one is loaded with Thrift, for a client
        assert unused not in loaded


@pytest.mark.parametrize(("host", "open_to_all"), [("127.0.0.1", False), ("[::1]", False), ("0.0.0.0", True)])
def test_a_port_that_anybody_may_use_is_warned_of(start, host, open_to_all):
    process = start("--no-p4", "--", "--grpc-server-addr", f"{host}:0")
    ready_line(process)
    process.terminate()
    _, err = process.communicate(timeout=TIMEOUT)
    assert ("may set the program; --grpc-mutual-tls" in err) == open_to_all


def failure(process):
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 1
    assert out == ""
    return err


@pytest.mark.few(1)
@pytest.mark.live
@pytest.mark.parametrize("when", ["idle", "traffic", "push"])
def test_a_switch_that_is_killed_leaves_nothing_behind(tmp_path, when):
    """No drop at its interfaces, no process, no temporary file; a compilation that was under way goes to the cache."""
    programs = []
    for name in ("forwarder", "router"):
        programs.append(tmp_path / f"{name}.json")
        compiled = compile_once(Path(__file__).with_name("programs") / f"{name}.p4")
        programs[-1].write_text(compiled.json_text())
        programs[-1].with_suffix(".p4info.txtpb").write_text(compiled.p4info_text())
    (tmp_path / "session").mkdir()
    script = Path(__file__).with_name("killed_session.py")
    command = ["unshare", "-rn", sys.executable, script, when, *programs, tmp_path / "session"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT + 60, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    built = [".c", ".c", ".lock", ".lock", ".lock", ".so", ".so", ".so"] if when == "push" else []
    assert json.loads(done.stdout) == {"clsact": [True, False], "temporary": [], "cache": built}


@pytest.mark.few(1)
@pytest.mark.live
@pytest.mark.parametrize(
    ("options", "stream"),
    [
        ("", "stderr"),
        ("--log-console", "stdout"),
        ("--log-console -L trace", "stdout"),
        ("--log-file x.log", "x.log"),
    ],
)
def test_messages_of_a_program_go_to_the_log_and_without_one_to_the_standard_error(options, stream, tmp_path):
    program, folder = tmp_path / "log_msg.json", tmp_path / "session"
    program.write_text(compile_once(Path(__file__).with_name("programs") / "log_msg.p4").json_text())
    folder.mkdir()
    command = ["unshare", "-rn", sys.executable, Path(__file__).with_name("message_session.py"), program]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run(
        [*command, *options.split()], cwd=folder, env=environment, timeout=TIMEOUT + 60, check=True
    )
    written = {path.name: path.read_text() for path in folder.iterdir()}
    assert "[I] [thread" in written[stream]
    assert [name for name, text in written.items() if "what=1 i=-5" in text] == [stream]


def test_an_address_in_use_is_named(start):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}" in failure(start("--no-p4", "--", "--grpc-server-addr", address))


def test_a_missing_interface_is_named(start):
    assert "no interface nowhere0" in failure(start("--no-p4", "-i", "1@nowhere0"))


def test_a_missing_program_is_named(start):
    assert "nowhere.json" in failure(start("nowhere.json"))


def test_a_missing_certificate_is_named(start):
    tls = ["--grpc-server-ssl", "--grpc-server-cert", "nowhere.crt", "--grpc-server-key", "nowhere.key"]
    assert "nowhere.key: No such file" in failure(start("--no-p4", "--", *tls))


def test_a_missing_folder_of_certificates_is_named(start):
    assert "nowhere/server.key: No such file" in failure(
        start("--no-p4", "--", "--grpc-mutual-tls", "nowhere")
    )


def test_a_broken_program_is_named(start, tmp_path):
    program = tmp_path / "broken.json"
    program.write_text("{")
    assert "broken.json: not a JSON document" in failure(start(str(program)))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give its rights up")
def test_missing_rights_are_explained():
    require_readable()
    command = [sys.executable, "-m", "fanin.p4switch", "--no-p4", "-i", "1@lo"]
    drop = ["setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"]
    result = subprocess.run([*drop, *command], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert result.returncode == 1
    assert "CAP_NET_RAW" in result.stderr
