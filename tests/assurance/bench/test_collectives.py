"""Collectives in nccl-tests' columns: the factors that it documents, and measurements that check each element."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from typer.testing import CliRunner

from fanin.assurance.bench.collectives import HEADINGS, LIVE, CollectiveTime, bus_factor, measure_virtual
from fanin.assurance.bench.collectives_worker import CollectiveOrder, carry_out
from fanin.cli import app
from fanin.experiments.scenario.settings import Settings
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Operation
from fanin.workers.communicator import Communicator
from tests.workers.loopback import everywhere, free_tcp_addresses, job

TRACES = Path(__file__).parents[2] / "experiments" / "workloads" / "traces"
CHAKRA = [str(TRACES / f"dp.{rank}.et") for rank in range(4)]
SHAPE = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}}


@pytest.mark.parametrize(
    ("operation", "factor", "count"),
    [
        ("all-reduce", 1.75, "1,000,000"),
        ("reduce-scatter", 0.875, "125,000"),
        ("all-gather", 0.875, "125,000"),
        ("all-to-all", 0.875, "125,000"),
        ("broadcast", 1.0, "1,000,000"),
    ],
)
def test_bus_bandwidth_and_count_are_those_of_nccl_tests(
    operation: Operation, factor: float, count: str
) -> None:
    """The count is the argument of the call: that of a rank's part, if ranks have parts."""
    time = CollectiveTime(operation, "ring", 8, 4_000_000, [0.001, 0.003], 0)
    assert bus_factor(operation, 8) == factor
    assert time.mean_seconds == pytest.approx(0.002)
    assert time.algorithm_bandwidth == pytest.approx(2e9)
    assert time.bus_bandwidth == pytest.approx(2e9 * factor)
    cells = dict(zip(HEADINGS, time.cells, strict=True))
    assert (cells["size B"], cells["count"], cells["type"]) == ("4,000,000", count, "float")
    assert (cells["time us"], cells["algbw GB/s"]) == ("2,000.00", "2.0000")


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("operation", get_args(Operation))
def test_a_ring_in_virtual_time_comes_close_to_the_rate_of_the_links(
    switch: Engine, operation: Operation
) -> None:
    """That is what a bus bandwidth is for: it can be compared with the rate, whatever the operation."""
    settings = Settings.model_validate({"topology": SHAPE, "size": "4 MB"})
    time = measure_virtual(settings, switch, operation, "ring", 4_000_000, 1)
    assert time.wrong == 0
    assert 0.85 * 10e9 / 8 < time.bus_bandwidth < 10e9 / 8


@pytest.mark.parametrize("operation", LIVE)
def test_a_ring_between_hosts_is_measured_too(operation: Operation) -> None:
    order = CollectiveOrder(operation, "ring", 1200, 2)
    with job(3) as (comms, _):
        addresses = free_tcp_addresses(3)
        reports = everywhere(comms, lambda comm: carry_out(order, comm, addresses))
    assert [(report.wrong, len(report.ends)) for report in reports] == [(0, 2)] * 3


@pytest.mark.parametrize("operation", LIVE)
def test_a_worker_counts_wrong_elements(operation: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    order = CollectiveOrder(operation, "in-network", 1200, 2)
    with job(3) as (comms, _):
        reports = everywhere(comms, lambda comm: carry_out(order, comm, ()))
    assert [report.wrong for report in reports] == [0, 0, 0]
    assert [len(report.ends) for report in reports] == [2, 2, 2]
    name = operation.replace("-", "_") if operation == "reduce-scatter" else operation.replace("-", "")
    right = getattr(Communicator, name)

    def wrong(self: Communicator, x: np.ndarray) -> np.ndarray:
        result = np.array(right(self, x))
        result.reshape(-1)[0] += 1
        return result

    monkeypatch.setattr(Communicator, name, wrong)
    with job(3) as (comms, _):
        reports = everywhere(comms, lambda comm: carry_out(order, comm, ()))
    assert [report.wrong for report in reports] == [3, 3, 3]


@pytest.mark.slow
def test_virtual_collectives_are_printed_and_checked() -> None:
    arguments = ["bench", "collectives", "--scenario", "scenario:small-virtual", "--repetitions", "1"]
    arguments += ["--operations", "all-reduce,all-gather", "--sizes", "64 KiB"]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [(row["operation"], row["algorithm"]) for row in rows] == [
        ("all-reduce", "in-network"),
        ("all-reduce", "ring"),
        ("all-gather", "in-network"),
        ("all-gather", "ring"),
    ]
    assert all(row["wrong"] == 0 and row["bytes"] == 65536 for row in rows)
    shown = CliRunner().invoke(app, arguments).output
    assert "busbw GB/s" in shown


def test_unknown_operations_are_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "collectives", "--operations", "gather"])
    assert done.exit_code == 2
    assert "'gather' is not one of all-reduce" in " ".join(done.output.split())


def in_virtual_time(folder: Path, text: str, *arguments: str) -> tuple[int, str]:
    """Run on a scenario of four hosts at one switch with these keys; return the exit status and what is printed."""
    file = folder / "scenario.toml"
    file.write_text(
        f'name = "x"\n{text}\n[topology.leaf_spine]\nspines = 0\nleaves = 1\nhosts_per_leaf = 4\nrate = "1 Gb/s"\n'
    )
    options = ("--scenario", str(file), "--repetitions", "1", *arguments)
    done = CliRunner().invoke(app, ["bench", "collectives", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(
    ("text", "operation", "words"),
    [
        ("[training]", "all-reduce", "training: gives its own calls; leave it out"),
        (
            "parallelism = {micro_batches = 4, forward = '1 us', backward = '1 us'}\nsize = '4 kB'",
            "all-reduce",
            "parallelism: gives its own calls",
        ),
        (f"workload = {{trace = {CHAKRA}}}", "all-reduce", "workload.trace: gives its own calls"),
        ("size = '4 kB'\ntrees = 2", "all-gather", "trees: 'all-gather' has one tree; leave it out"),
        (
            "size = '4 kB'\nprotocol = 'switchml'",
            "all-gather",
            "only fanin's own protocol and worker do 'all-gather'",
        ),
        ("size = '4 kB'\nworld = 'live'", "all-reduce", "is live; give a scenario in virtual time"),
    ],
)
def test_scenarios_with_which_a_collective_cannot_be_measured_are_refused(
    tmp_path: Path, text: str, operation: str, words: str
) -> None:
    status, shown = in_virtual_time(tmp_path, text, "--operations", operation)
    assert status == 2
    assert words in shown


@pytest.mark.slow
def test_a_scenario_brings_the_program_of_its_protocol(tmp_path: Path) -> None:
    status, shown = in_virtual_time(tmp_path, "size = '4 kB'\nprotocol = 'switchml'", "--sizes", "4 KiB")
    assert status == 0, shown
    assert "all-reduce in-network 4,096 1,024 float sum" in shown


@pytest.mark.slow
def test_arrays_have_a_part_of_the_same_size_for_each_rank(tmp_path: Path) -> None:
    """As in nccl-tests, a size is rounded down to whole parts, of at least one value."""
    operations = ("--operations", "broadcast,all-gather,all-to-all")
    status, shown = in_virtual_time(tmp_path, "size = '4 kB'", *operations, "--sizes", "12 B,100 B")
    assert status == 0, shown
    for row in (
        "broadcast ring 100 25",
        "all-gather in-network 16 1",
        "all-gather ring 96 6",
        "all-to-all ring 96 6",
    ):
        assert row in shown
