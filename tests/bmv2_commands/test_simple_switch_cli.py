"""`simple_switch_CLI` on a running switch: every family of commands, completion, help and what is refused."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.bmv2_commands import simple_switch_cli
from fanin.p4compiler import compile_once
from fanin.p4switch.bmv2_runtime.server import ThriftServer, serve_thrift
from fanin.p4switch.p4runtime.device import Device

PROGRAM = Path(__file__).parents[1] / "p4switch" / "programs" / "bmv2_runtime.p4"
SESSION = Path(__file__).with_name("cli_session.txt")
PROMPT = "RuntimeCmd: "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ThriftServer]:
    device = Device({}, None, 511)
    device.boot(compile_once(PROGRAM).device_config())
    started = serve_thrift(device, 3, 0, f"ipc://{tmp_path}/notifications")
    yield started
    started.stop()
    device.stop()


@pytest.fixture
def cli(server: ThriftServer) -> Iterator[simple_switch_cli.RuntimeCli]:
    with simple_switch_cli.connected("localhost", server.port) as cli:
        cli.load(compile_once(PROGRAM).json_text())
        yield cli


def sections() -> list[tuple[str, str]]:
    """The parts of the session, each with a title."""
    parts = re.split(r"^## (.*)\n", SESSION.read_text(), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.few(4)
@pytest.mark.slow
@pytest.mark.parametrize(("title", "session"), sections(), ids=[title for title, _ in sections()])
def test_a_session(cli, title, session, capsys):
    """The file holds commands after the prompt, and below each what it prints."""
    assert title
    commands = [line.removeprefix(PROMPT) for line in session.splitlines() if line.startswith(PROMPT)]
    told = ""
    for command in commands:
        cli.onecmd(command)
        told += f"{PROMPT}{command}\n{capsys.readouterr().out}"
    assert told.splitlines() == session.rstrip("\n").splitlines()


def test_the_session_has_every_command(cli):
    """Check that the recorded session uses every command; those that need ports or write files are tested below."""
    used = {
        line.removeprefix(PROMPT).split(" ")[0] for line in SESSION.read_text().splitlines() if PROMPT in line
    }
    others = {"exit", "quit", "EOF", "shell", "help", "port_add", "port_remove", "switch_info"}
    others |= {"write_config_to_file", "serialize_state", "load_new_config_file", "swap_configs"}
    others |= {"get_time_elapsed", "get_time_since_epoch"}
    assert set(cli.completenames("")) == (used - {"#", "table_what"}) | others


@pytest.mark.few(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("table_a", ["table_add"]),
        ("table_add I.e", ["I.ex"]),
        ("table_add ", ["I.ex", "I.te", "I.ra", "I.as", "I.co", "I.kless"]),
        ("table_add ra ", ["I.send", "NoAction"]),
        ("table_add ex se", ["I.send"]),
        ("table_add ex send ", []),
        ("table_set_default ex N", ["NoAction"]),
        ("table_modify te ", ["I.send", "NoAction"]),
        ("table_dump k", ["I.kless"]),
        ("table_indirect_add ", ["I.ex", "I.te", "I.ra", "I.as", "I.co", "I.kless"]),
        ("act_prof_create_member ", ["I.sel"]),
        ("act_prof_create_member sel s", ["I.send"]),
        ("act_prof_dump ", ["I.sel"]),
        ("counter_read ", ["I.c", "I.dc"]),
        ("meter_set_rates ", ["I.me"]),
        ("register_read w", ["I.wide"]),
        ("pvs_add ", ["P.vs"]),
        ("set_crc32_parameters ", ["calc", "I.sel.selector"]),
        ("mc_mgrp_create ", []),
    ],
)
def test_completion(cli, line, found):
    text = line.rpartition(" ")[2]
    complete = cli.completedefault if " " in line else lambda text, *_: cli.completenames(text)
    assert complete(text, line, len(line) - len(text), len(line)) == found


def test_help_lists_commands_and_shows_how_one_is_used(cli, capsys):
    cli.onecmd("help table_add")
    assert "table_add TABLE ACTION KEY… => [PARAMETER…] [PRIORITY]" in capsys.readouterr().out
    cli.onecmd("help")
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("table_add", "mc_mgrp_create", "counter_read", "act_prof_dump"))
    cli.onecmd("help table_addition")
    assert "table_addition" in capsys.readouterr().out


def test_files(cli, tmp_path, capsys):
    config = tmp_path / "config.json"
    cli.onecmd(f"write_config_to_file {config}")
    cli.onecmd(f"load_new_config_file {config}")
    cli.onecmd("swap_configs")
    cli.onecmd(f"serialize_state {tmp_path / 'state'}")
    assert capsys.readouterr().out.count("Invalid") <= 1
    assert '"pipelines"' in config.read_text()
    cli.onecmd("load_new_config_file /nowhere")
    cli.onecmd("write_config_to_file /nowhere/else")
    assert capsys.readouterr().out.splitlines() == [
        "Error: /nowhere: No such file or directory",
        "Error: /nowhere/else: No such file or directory",
    ]


def test_what_differs_from_run_to_run(cli, capsys):
    cli.onecmd("switch_info")
    assert re.search(r"^device_id *: 3$", capsys.readouterr().out, re.MULTILINE)
    cli.onecmd("get_time_elapsed")
    cli.onecmd("get_time_since_epoch")
    elapsed, epoch = map(int, capsys.readouterr().out.split())
    assert epoch > elapsed >= 0
    cli.onecmd("port_add nowhere 3")
    cli.onecmd("port_remove 3")
    cli.onecmd("port_remove three")
    *refused, wrong = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("Invalid device manager operation", "Error: ")) for line in refused)
    assert wrong == "Error: three is not a number"


def test_the_command_reads_its_input_to_the_end(server, monkeypatch, capsys):
    for lines in ("table_num_entries ex\n", "table_num_entries ex\nexit\ntable_clear ex\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert simple_switch_cli.main(["--thrift-port", str(server.port)]) == 0
        assert f"{PROMPT}0\n" in capsys.readouterr().out


def test_without_a_switch_it_says_how_to_start_one(capsys):
    assert simple_switch_cli.main(["--thrift-port", "1"]) == 1
    assert (
        "Could not connect to a switch at localhost:1: start it with --thrift-port 1"
        in capsys.readouterr().err
    )
