"""Commands for the network that is up, where its switches are BMv2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.testbed import running
from fanin.testbed.running import RunningHost, RunningNetwork, RunningSwitch
from fanin.testbed.runs import Run
from tests.fanin.network import SMALL, Up

REFUSED = [
    (("link", "leaf1"), "emulates no links: fanin up --rate"),
    (("link", "leaf1", "h1", "--set", "loss=1%"), "emulates no links: fanin up --rate"),
    (("trace", "--on", "leaf1"), "fanin trace --on leaf1 --packet HEX"),
    (("packet", "leaf1", "--hex", "00"), "send one from a host with fanin exec"),
]


@pytest.mark.parametrize(("arguments", "instead"), REFUSED, ids=lambda value: " ".join(value[:2]))
def test_what_bmv2_cannot_do_is_refused_with_what_to_do_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...], instead: str
) -> None:
    switches = {"leaf1": RunningSwitch(1, 9559, "bmv2", {1: "h1"})}
    network = RunningNetwork(Run(tmp_path / "fanin-run-1-1-1"), switches, {"h1": RunningHost(5, "10.1.0.1")})
    monkeypatch.setattr(running, "running_networks", lambda: [network])
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code
    [line] = done.stderr.splitlines()
    assert line.startswith(f"fanin {arguments[0]}: leaf1 is BMv2, which ")
    assert instead in line


@pytest.mark.live
@pytest.mark.bmv2
def test_on_bmv2_itself(tmp_path: Path, fanin: Any) -> None:
    with Up(tmp_path, *SMALL, "--switch", "bmv2") as up:
        for arguments, instead in REFUSED:
            done = fanin(*arguments, **up.environment)
            assert done.returncode
            assert "leaf1 is BMv2, which " in done.stderr
            assert instead in done.stderr
        for arguments in (
            ("trace", "--on", "leaf1", "--packet", "00"),
            ("tables", "leaf1"),
            ("counters", "leaf1"),
            ("top", "--once"),
            ("allreduce", "--sizes", "4 kB", "--repetitions", "1"),
        ):
            done = fanin(*arguments, **up.environment)
            assert done.returncode == 0, done.stderr


SCRIPT = """
import numpy as np
import fanin

comm = fanin.init()
vectors = [np.random.default_rng(rank).normal(size=1000).astype(np.float32) for rank in range(comm.size)]
mine = vectors[comm.rank]
assert np.array_equal(comm.allgather(mine), vectors)
assert np.array_equal(comm.broadcast(mine.copy(), root=1), vectors[1])
assert np.allclose(comm.reduce_scatter(mine), np.split(sum(vectors), comm.size)[comm.rank], atol=1e-4)
"""


@pytest.mark.live
@pytest.mark.bmv2
def test_bmv2_gathers_broadcasts_and_scatters_in_the_network(tmp_path: Path, fanin: Any) -> None:
    (tmp_path / "gathers.py").write_text(SCRIPT)
    racks = ("--workers", "4", "--leaves", "2", "--spines", "1")
    with Up(tmp_path, *racks, "--switch", "bmv2") as up:
        done = fanin("launch", str(tmp_path / "gathers.py"), **up.environment)
        assert done.returncode == 0, done.stderr
