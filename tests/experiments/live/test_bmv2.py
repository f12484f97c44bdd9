"""The same program, controller, topology and workers on the real BMv2, by either compiler."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fanin.controller.requirements import PROGRAM
from fanin.experiments.scenario.compilers import compile_program
from fanin.experiments.scenario.targets import EMBEDDED, target
from fanin.experiments.scenario.tools import BMV2, ToolError
from fanin.testbed.switch_processes import Bmv2
from fanin.topologies.shapes import leaf_spine

SWITCH = leaf_spine(0, 1, 2).leaves[0]
SCRIPT = """
from dataclasses import asdict
import json, pathlib, sys
from fanin.testbed.sandbox import enter
enter()
from fanin.experiments.scenario.compilers import compile_program
from fanin.controller.requirements import PROGRAM
from fanin.experiments.demo import Work, demo_points, run_demo
from fanin.experiments.scenario.tables.topology import LeafSpine, TopologySettings
from fanin.experiments.scenario.tables.training import Training

class Quiet:
    def stage(self, text): pass
    def awaits(self, who): pass
    def run(self, settings, steps): return lambda step, awaited: None

network = TopologySettings(leaf_spine=LeafSpine(spines=1, leaves=2, hosts_per_leaf=2, rate=4_000_000))
work = Work(Training(epochs=1, hidden=16), 4000, 2)
points = demo_points(network, 0.02, "bmv2", sys.argv[2], work)
demo = run_demo(points, compile_program(PROGRAM, sys.argv[2]), pathlib.Path(sys.argv[1]), Quiet())
curves = [run.measured.curve for run in demo.runs]
print(json.dumps([run.columns | {"curve": c and asdict(c)} for run, c in zip(demo.runs, curves)]))
"""


def demo(folder: Path, compiler: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", SCRIPT, str(folder), compiler]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sums_are_right(runs: list[dict[str, Any]]) -> None:
    assert [run["algorithm"] for run in runs] == ["in-network", "ring", "in-network", "in-network", "ring"]
    for run in runs:
        assert run["engine"] == "bmv2"
        assert run["violations"] == 0
        assert 0 < run["max_abs_error"] <= run["error_bound"]
    losses = [run["curve"]["loss"] for run in runs if run["curve"] and run["algorithm"] == "in-network"]
    assert losses[0] == losses[1]  # with and without packets lost, bit for bit


@pytest.mark.live
@pytest.mark.bmv2
def test_the_demo_on_bmv2(tmp_path):
    sums_are_right(demo(tmp_path, "embedded"))


@pytest.mark.live
@pytest.mark.bmv2
@pytest.mark.p4c
def test_the_demo_on_bmv2_with_p4c(tmp_path):
    sums_are_right(demo(tmp_path, "p4c"))


@pytest.mark.p4c
@pytest.mark.parametrize("kind", ["tables", "actions", "counters", "direct_counters", "registers"])
def test_p4c_and_our_compiler_describe_the_same_objects(kind, p4infos):
    theirs, ours = ({m.preamble.id: m for m in getattr(p4info, kind)} for p4info in p4infos)
    assert theirs == ours


@pytest.fixture(scope="module")
def p4infos():
    return [compile_program(PROGRAM, compiler).p4info for compiler in ("p4c", "embedded")]


@pytest.mark.p4c
def test_what_p4c_says_of_a_wrong_program_is_passed_on(tmp_path):
    program = tmp_path / "wrong.p4"
    program.write_text("control c(")
    with pytest.raises(ToolError, match=r"wrong\.p4\(1\)"):
        compile_program(program, "p4c")


def test_bmv2_is_found_by_a_variable_with_options(tmp_path, monkeypatch):
    switch = tmp_path / "my switch"
    switch.write_text("#!/bin/sh\n")
    switch.chmod(0o755)
    monkeypatch.setenv("FANIN_BMV2", f"'{switch}' --log-console")
    assert BMV2.find() == [str(switch), "--log-console"]
    assert target("bmv2").launcher.command(SWITCH, {1: "leaf1-eth1"})[:4] == [
        *(str(switch), "--log-console", "--no-p4", "-i")
    ]


@pytest.mark.parametrize("thrift", [True, False], ids=["with Thrift", "without"])
def test_bmv2_is_told_a_thrift_port_where_it_was_built_with_thrift(tmp_path, thrift):
    switch = tmp_path / "simple_switch_grpc"
    switch.write_text(f"#!/bin/sh\necho '{'--thrift-port arg' if thrift else '--device-id arg'}'\n")
    switch.chmod(0o755)
    assert ("--thrift-port" in Bmv2([str(switch)]).command(SWITCH, {1: "leaf1-eth1"})) is thrift


@pytest.mark.parametrize(
    ("release", "hint"),
    [("22.04", "sudo ./p4lang-packages.sh installs"), ("24.04", "none known for Ubuntu 24.04")],
)
def test_an_absent_bmv2_says_how_to_get_it(monkeypatch, release: str, hint: str):
    monkeypatch.delenv("FANIN_BMV2", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    names = {"ID": "ubuntu", "VERSION_ID": release, "PRETTY_NAME": f"Ubuntu {release}"}
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: names)
    with pytest.raises(ToolError, match=f"BMv2 is not installed: .*{hint}.*or build it from https://"):
        target("bmv2")


def test_windows_fit_the_switch(monkeypatch):
    monkeypatch.setenv("FANIN_BMV2", sys.executable)
    bmv2 = target("bmv2")
    egress_queue = 64
    assert bmv2.pace(None).window <= egress_queue // 4
    assert not bmv2.pace(None).offload
    faster = (EMBEDDED.pace(rate).window for rate in (10_000_000_000, None))
    assert EMBEDDED.pace(100_000_000).window < min(faster)
