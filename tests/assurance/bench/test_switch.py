"""The benchmark of the switch: its traffic, its tables, and that every case runs and is written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fanin.assurance.bench.switch import frames
from fanin.assurance.bench.switch.bench import SwitchCase, SwitchOutcome
from fanin.assurance.bench.switch.errors import SwitchBenchError
from fanin.assurance.bench.switch.native import bare
from fanin.assurance.bench.switch.tables import TABLE, Routes, switch
from fanin.testbed.patience import setting

SESSION = Path(__file__).with_name("switch_session.py")
ROOT = Path(__file__).parents[3]


@pytest.mark.live
def test_every_case_runs_and_is_written_down(tmp_path: Path) -> None:
    """The session checks sums and that results keep coming; BMv2 is said to be missing where it is."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FANIN_BMV2": "nowhere/simple_switch_grpc"}
    environment["P4SWITCH_CFLAGS"] = "-Og"  # -O3 would take twice as long to compile
    done = subprocess.run(
        [sys.executable, str(SESSION), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120 * setting(),
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "switch.json").read_text())
    assert {tuple(case) for case in written["cases"]} == {
        ("name", "pps", "baseline", "baseline_pps", "ratio")
    }
    assert all(case["pps"] > 0 and case["ratio"] > 0 for case in written["cases"])
    names = [
        "aggregation, plain frames, 2 ports, 64 values",
        "aggregation, superframes, 2 ports, 256 values",
        "aggregation, superframes, 2 ports, 256 values (packets a second)",
        "IPv4 routing, 100 lpm entries",
        "IPv4 routing, 100 exact entries",
        "IPv4 routing, 20 ternary entries",
        "table writes over P4Runtime (entries a second)",
        "JSON to running switch, first time (a second)",
        "JSON to running switch, from the cache (a second)",
    ]
    *others, bmv2 = written["not_run"]
    if others:  # a kernel before 6.2
        assert others[0].startswith("superframes: Linux ")
        names = [name for name in names if "superframes" not in name]
    assert [case["name"] for case in written["cases"]] == names
    assert "nowhere/simple_switch_grpc" in bmv2
    assert written["machine"]["processor"]
    assert written["compiler"]
    assert {"before", "after"} == set(written["load"])


def test_a_goal_is_a_ratio() -> None:
    case = SwitchCase("a", 700, "b", 1000, 0.7)
    assert SwitchOutcome(case, 0.7).is_met
    assert not SwitchOutcome(case, 0.71).is_met


@pytest.mark.parametrize(
    "routes", [Routes("lpm", 3000), Routes("exact", 500), Routes("ternary", 50)], ids=str
)
def test_packets_hit_the_entries(routes: Routes) -> None:
    """Every frame is a right IPv4 packet that an entry forwards, through one port or the other."""
    engine = switch(routes)
    assert len(engine.table(TABLE).entries()) == routes.count
    sent = routes.traffic(["w1", "w2"]).frames[:, :200]
    left = [engine.process(1, frame[frames.VIRTIO :].tobytes()) for frame in sent.reshape(-1, sent.shape[-1])]
    assert all(len(out) == 1 for out in left)
    assert {port for [(port, _)] in left} == {1, 2}


def test_superframes_are_described() -> None:
    """Headers of the whole, its pseudo-header's sum in the checksum (offload.h), and a segment's size beside them."""
    one = np.array([1], np.int64)
    fields = dict.fromkeys(
        ("to_mac", "from_mac", "source", "destination", "source_port", "destination_port"), one
    )
    headers = frames.headers({**fields, "protocol": 17 * one}, 5 * 1000)
    assert int(headers[0, 16:18].view(">u2")[0]) == 28 + 5000
    described = frames.superframes(headers, 1000)
    assert described[0].tobytes() == bytes([1, 5, 42, 0, *(1000).to_bytes(2, "little"), 34, 0, 6, 0])
    assert int(headers[0, 40:42].view(">u2")[0]) == 1 + 1 + 17 + 5008


def test_a_bare_loop_without_its_interface_says_so() -> None:
    """And does not wait for it."""
    with pytest.raises(SwitchBenchError, match="bare"), bare(["nowhere"], 64, superframes=False):
        pass
