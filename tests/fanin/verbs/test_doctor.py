"""`fanin doctor` says what a machine lacks, what that costs and how to fix it."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments.scenario import tools
from fanin.testbed import sandbox

pytestmark = pytest.mark.slow


def findings(text: str) -> dict[str, str]:
    """Return the text about each thing, by the line that names it."""
    said: dict[str, str] = {}
    for line in text.splitlines():
        if line[:2] in ("✓ ", "– ", "✗ "):
            name = line
        if not line:
            break
        said[name] = said.get(name, "") + line + "\n"
    return said


def found(text: str, name: str) -> str:
    (entry,) = (said for line, said in findings(text).items() if line[2:].startswith(name))
    return entry


@pytest.mark.live
def test_a_machine_that_runs_the_live_tests_has_all_that_is_needed(fanin):
    done = fanin("doctor")
    assert done.returncode == 0, done.stdout
    assert "✗" not in done.stdout
    for name in ("Mininet", "namespaces", "veth", "htb", "packet sockets", "C compiler"):
        assert found(done.stdout, name).startswith("✓")
    as_json = fanin("doctor", "--json")
    assert as_json.returncode == 0
    listed = [json.loads(line) for line in as_json.stdout.splitlines()]
    assert [each["name"] for each in listed] == [line[2:].split("  ")[0] for line in findings(done.stdout)]
    assert {each["state"] for each in listed} <= {"ok", "optional"}


def test_without_a_c_compiler_fanin_does_not_run(fanin, tmp_path):
    done = fanin("doctor", CC="/nowhere/cc", XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 1
    as_json = fanin("doctor", "--json", CC="/nowhere/cc", XDG_CACHE_HOME=str(tmp_path))
    assert as_json.returncode == 1
    listed = {each["name"]: each for each in map(json.loads, as_json.stdout.splitlines())}
    assert listed["C compiler"]["state"] == "missing"
    assert "apt-get install gcc" in listed["C compiler"]["fix"]
    said = found(done.stdout, "C compiler")
    assert said.startswith("✗")
    assert "apt-get install gcc" in said

    assert "fanin cannot run here: there is no C compiler." in done.stdout


def test_without_namespaces_it_says_what_cannot_run_and_what_does(monkeypatch):
    def refuse() -> None:
        raise sandbox.SandboxError("user namespaces are forbidden; run it as root")

    monkeypatch.setattr(sandbox, "check", refuse)
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert "no live network can be built; fanin lab grade does not mark" in said
    assert "Live networks cannot run here, because of: namespaces." in said
    assert "What needs none runs: lessons, labs, scenarios in virtual time" in said
    assert "fanin cannot run here" not in said


@pytest.mark.live
def test_superframes_are_tried_and_not_asked_for(fanin, old_kernel):
    done = fanin("doctor", **old_kernel)
    assert done.returncode == 0
    said = found(done.stdout, "superframes")
    assert said.startswith("–")
    # 5.10 itself takes them apart, before packet sockets refuse them.
    refused = r"(splits UDP superframes from hosts to switches|from hosts to switches \(Invalid argument\))"
    assert re.search(refused, " ".join(said.split()))
    assert "several times as long" in " ".join(said.split())


@pytest.mark.parametrize(
    ("name", "variable", "option"),
    [
        ("BMv2", "FANIN_BMV2", "--switch bmv2 does not work"),
        ("p4c", "FANIN_P4C", "--compiler p4c does not work"),
    ],
)
def test_without_the_reference_tools_it_says_how_to_get_them(fanin, name, variable, option):
    text = fanin("doctor", **{variable: "/nowhere/tool -x"}).stdout
    said = found(text, name)
    assert said.startswith("–")
    assert "p4lang" in said
    assert name in text.splitlines()[-1]
    assert option in text.splitlines()[-1]
    assert variable in said
    assert "/nowhere/tool" in said


def stand_in(folder, script):
    program = folder / "stand in"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return f"'{program}' --option"


@pytest.mark.parametrize("name", ["BMv2", "p4c"])
def test_a_reference_tool_that_cannot_start_gets_no_tick(fanin, tmp_path, name):
    variable = f"FANIN_{name.upper()}"
    said = found(fanin("doctor", **{variable: stand_in(tmp_path, "echo 1.2.3; exit 127")}).stdout, name)
    assert said.startswith("–")
    assert f"{tmp_path / 'stand in'} does not start" in said
    assert "--version fails" in said


def test_the_options_of_a_reference_tool_belong_to_its_command(fanin, tmp_path):
    command = stand_in(tmp_path, '[ "$*" = "--option --version" ] && echo 1.2.3')
    assert found(fanin("doctor", FANIN_BMV2=command).stdout, "BMv2").startswith("✓ BMv2  1.2.3")


def test_one_reference_tool_is_enough_for_diff(fanin, tmp_path):
    here, elsewhere = stand_in(tmp_path, "echo 1.2.3"), "/nowhere/tool"
    without_p4c = fanin("doctor", FANIN_BMV2=here, FANIN_P4C=elsewhere).stdout.splitlines()[-1]
    assert "fanin runs here, without p4c: --compiler p4c does not work; " in without_p4c
    neither = fanin("doctor", FANIN_BMV2=elsewhere, FANIN_P4C=elsewhere).stdout.splitlines()[-1]
    assert (
        "--switch bmv2 does not work, --compiler p4c does not work, fanin diff has nothing to compare"
        in neither
    )


def test_a_demo_on_a_switch_that_is_not_there_says_how_to_get_it(fanin):
    done = fanin("demo", "--switch", "bmv2", FANIN_BMV2="/nowhere/simple_switch_grpc")
    assert done.returncode == 1
    assert "p4lang" in done.stderr


@pytest.mark.parametrize(
    ("release", "helps"),
    [
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "sudo ./p4lang-packages.sh"),
        ({"ID": "ubuntu", "VERSION_ID": "24.04"}, "Ubuntu 22.04 (vagrant up), none known for this release"),
        ({"ID": "debian"}, "Ubuntu 22.04 (vagrant up), none known for this release"),
    ],
)
def test_nobody_is_sent_to_packages_that_do_not_exist(monkeypatch, release, helps):
    monkeypatch.setattr(
        tools.platform, "freedesktop_os_release", lambda: release | {"PRETTY_NAME": "this release"}
    )
    assert helps in tools.packages()
