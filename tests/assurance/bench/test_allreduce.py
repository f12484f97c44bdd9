"""The all-reduce benchmark: what it runs, that it checks every sum, and what it says of a worker that fails."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fanin.assurance.bench import allreduce
from fanin.assurance.bench.allreduce import (
    BenchError,
    BenchNetwork,
    Group,
    networks,
    repetitions,
    write,
)
from fanin.assurance.bench.allreduce_worker import PERIOD, SHIFT, STEP, Inputs, Join, Order, Report, execute
from fanin.cli import app
from fanin.experiments.results.checking import float32_sum_bound, quantized_sum_bound
from fanin.testbed.patience import setting
from fanin.workers.collective import Statistics
from tests.sizes import sized

SCRIPT = """
from dataclasses import asdict
import json, pathlib, sys
from fanin.testbed.sandbox import enter
enter()
from fanin.assurance.bench.allreduce import BenchNetwork, measure_network
from fanin.experiments.scenario.compilers import compile_program
from fanin.controller.requirements import PROGRAM

program = compile_program(PROGRAM, "embedded")
cases = []
for network in (BenchNetwork(2, 1), *MORE BenchNetwork(2, 1, offload=False)):
    cases += measure_network(network, [1 << 10, 100_000], program, None, 2, lambda case: None)
cases += measure_network(BenchNetwork(2, 1), [1 << 10], program, None, 2, lambda case: None, ["nothing", "loop"])
print(json.dumps([asdict(case) for case in cases]))
""".replace("*MORE", sized("", "BenchNetwork(4, 2, 10**9),"), 1)


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120 * setting(), check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.live
def test_every_algorithm_sums_rightly_on_every_network(cases: list[dict[str, Any]]) -> None:
    assert [(case["workers"], case["leaves"], case["bytes"]) for case in cases] == [
        (2, 1, 1024),
        (2, 1, 100_000),
        *sized([], [(4, 2, 1024), (4, 2, 100_000)]),
        (2, 1, 1024),
        (2, 1, 100_000),
        (2, 1, 1024),
        (2, 1, 1024),
    ]
    assert [case["superframes"] for case in cases[-4:]] == [False, False, True, True]
    assert [case["beside"] for case in cases[-3:]] == ["nothing", "nothing", "loop"]
    for case in cases:
        assert set(case["measured"]) == {"in-network", "ring"}  # no Gloo: none was asked for
        for measured in case["measured"].values():
            assert measured["wrong"] == 0
            assert measured["repetitions"] == 2 * repetitions(case["bytes"], case["link_bits_per_second"])
            assert 0 < measured["least"] <= measured["seconds"]
            goodput = 8 * case["bytes"] / measured["seconds"]
            assert measured["goodput_bits_per_second"] == pytest.approx(goodput)


@pytest.mark.live
def test_it_says_where_the_time_goes_and_what_the_limit_is(cases: list[dict[str, Any]]) -> None:
    for case in cases:
        split = case["split"]
        assert set(split["worker"]) == {"wait", "receive", "unpack", "pack", "send", "the rest"}
        assert all(seconds >= 0 for seconds in split["worker"].values())
        assert split["switches"] >= 0
        assert split["limit"]


def test_the_networks_are_one_switch_and_leaf_spine_without_limits_and_one_switch_at_a_gigabit() -> None:
    assert networks([4, 8], plain=False) == [
        *(BenchNetwork(4, 1), BenchNetwork(8, 1), BenchNetwork(4, 2), BenchNetwork(8, 2)),
        *(BenchNetwork(4, 1, 10**9), BenchNetwork(8, 1, 10**9)),
    ]
    assert [n.topology.offload for n in networks([4], plain=True)] == [True, False] * 3
    shapes = [(len(n.topology.leaves), len(n.topology.switches)) for n in networks([4], plain=False)]
    assert shapes == [(1, 1), (2, 4), (1, 1)]


class Sum:
    """A collective of one process that knows what the others have; `off`: by how much its results are wrong."""

    def __init__(self, inputs: Inputs, off: float = 0.0) -> None:
        self.statistics = Statistics()
        self._inputs = inputs
        self._off = off
        self._done = 0

    def all_reduce(self, x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if out is not None:
            period = np.random.default_rng(1).standard_normal(PERIOD, np.float32).astype(np.float64)
            total = sum(np.roll(period, SHIFT * rank) for rank in range(3))
            out[:] = np.resize(np.roll(total, -self._done * STEP), out.size)
            self._done += 1
            out[len(out) // 2] += self._off
        return x


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("promise", [quantized_sum_bound, float32_sum_bound])
@pytest.mark.parametrize("elements", [100, PERIOD + 1000])
def test_one_wrong_element_is_seen(promise: Any, elements: int) -> None:
    inputs = Inputs(1, 3, promise)
    assert execute(Order(elements, 2), Sum(inputs), inputs).wrong == 0
    assert execute(Order(elements, 2), Sum(inputs, off=1e-3), inputs).wrong == 3  # the warm-up counts
    assert execute(Order(elements, 2), Sum(inputs, off=float("nan")), inputs).wrong == 3


def test_an_all_reduce_lasts_from_the_last_call_to_the_last_result() -> None:
    reports = [Report(starts=[0.0, 10.0], ends=[5.0, 11.0]), Report(starts=[1.0, 9.0], ends=[4.0, 12.0])]
    assert allreduce._times(reports) == [4.0, 2.0]


def test_the_file_says_when_gloo_was_not_installed(tmp_path: Path) -> None:
    write([], False, {"processor": "one"}, tmp_path)
    assert json.loads((tmp_path / "allreduce.json").read_text())["gloo"] == "not installed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sizes", "64"], "64: write a number and its unit, such as '4 MB'"),
        (["--sizes", "0 kB"], "0 kB: must be a multiple of 4 bytes"),
        (["--sizes", "4 MB,2 GB"], "the largest size is 1 GB"),
        (["--workers", "many"], "is not a number such as 8"),
        (["--workers", "3"], "even"),
    ],
)
def test_a_size_or_number_that_cannot_be_is_refused(options: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["bench", "allreduce", *options])
    assert result.exit_code == 2
    assert message in result.output


def ask(folder: Path, script: str) -> None:
    """Asks a group of one worker, which is this shell script."""
    worker = folder / "worker"
    worker.write_text(f"#!/bin/sh\n{script}\n")
    worker.chmod(0o755)

    def start(_rank: int, argv: Sequence[str], options: dict[str, Any]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(argv, **options)

    async def ask() -> None:
        group = Group([Join("gloo", 0, ("127.0.0.1",), 1, "lo")], start, worker, folder)
        try:
            await group.ask([{}])
        finally:
            group.close()

    asyncio.run(ask())


def test_a_worker_that_ends_is_named_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="gloo-0: exit status 3: no torch here"):
        ask(tmp_path, "echo no torch here >&2; exit 3")


def test_a_group_that_says_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allreduce, "SILENCE", 0.1)
    with pytest.raises(BenchError, match="gloo: its group has not answered"):
        ask(tmp_path, "exec sleep 1000")
