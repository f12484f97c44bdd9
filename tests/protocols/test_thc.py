"""THC: compressed vectors that switches add; worker, program, plan and oracle together, with faults."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak.generate import scenario_for
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import Scenario, Work
from fanin.controller.errors import ControllerError
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.protocol import Protocol, protocol_of
from fanin.experiments.results.checking import oracle_of
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.shapes import leaf_spine
from fanin.workers.lease import Lease
from fanin.workers.recovery import Recovery
from fanin.workers.slotted import SlottedWorker
from tests.protocols.live import right_sums_of
from tests.protocols.mutants import FAULTY, protocol_with, switch_with

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def thc() -> Protocol:
    return protocol_of("thc")


@pytest.fixture(scope="module")
def adding_switch(thc: Protocol) -> Engine:
    return load_switch(thc.program)


def _scenario(thc: Protocol, racks: tuple[int, ...], elements: tuple[int, ...] = (3000, 1, 700)) -> Scenario:
    work = Work(racks, window=3, elements=elements, chunk_numbers=thc.chunks(elements, 64, 3))
    return Scenario(jobs=(work,), links=FAULTY)


# -- switches, workers and the oracle --------------------------------------------------------------------------------


@pytest.mark.parametrize("racks", [(1,), (5,), (2, 3), (1, 1, 1), (9, 8)])
def test_the_result_is_the_sum_of_what_all_workers_send(
    thc: Protocol, adding_switch: Engine, racks: tuple[int, ...]
) -> None:
    assert not run_scenario(_scenario(thc, racks), adding_switch, protocol=thc).violations


@pytest.mark.parametrize("seed", range(4))
def test_soak_finds_nothing_wrong_in_random_networks(thc: Protocol, adding_switch: Engine, seed: int) -> None:
    assert not run_scenario(scenario_for(seed, thc), adding_switch, protocol=thc).violations


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # A carry gets lost.
        ("(stored & added) | (carry & (stored ^ added))", "(stored & added)"),
        # A copy of a packet is added again.
        ("seen = seen | sender_bit;", "seen = seen | (sender_bit << 1);"),
        # The table has 15 values.
        ("LOOK_UP(7)\n", "\n"),
        # The norm is that of the last worker.
        ("if (hdr.norm.bits > norm) {", "if (true) {"),
        # A sum begins with what the cell had before.
        ("fresh = 1;", "fresh = 0;"),
        # A norm that is asked for again is that of the worker that asks.
        (
            "hdr.norm.bits = norm;\n                } else {\n                    LOAD(0)",
            "hdr.norm.bits = hdr.norm.bits;\n                } else {\n                    LOAD(0)",
        ),
    ],
)
def test_soak_finds_a_program_with_a_mistake(
    thc: Protocol, cache: pytest.Cache, text: str, mutated: str
) -> None:
    wrong = switch_with(thc, text, mutated, cache)
    assert run_scenario(_scenario(thc, (2, 3), (600,) * 24), wrong, protocol=thc).violations


@pytest.mark.parametrize(
    ("text", "mutated"),
    [
        # Indices are sent before the largest norm is known.
        ("codec.indices(self._out[0, 0])", "codec.indices(self._norm)"),
        # The result of an earlier chunk is taken for the norm.
        ("flat[:] = decoded(sums[ELEMENTS:], sums[0]", "flat[:] = decoded(sums[ELEMENTS:], self._norm"),
    ],
)
def test_soak_finds_a_worker_with_a_mistake(
    thc: Protocol, adding_switch: Engine, tmp_path: Path, text: str, mutated: str
) -> None:
    wrong = protocol_with(thc, text, mutated, tmp_path)
    assert run_scenario(_scenario(thc, (2, 3)), adding_switch, protocol=wrong).violations


# -- values ----------------------------------------------------------------------------------------------------------


def _inputs(workers: int, elements: int) -> list[NDArray[np.float32]]:
    return [
        np.random.default_rng(rank).standard_normal(elements, dtype=np.float32) for rank in range(workers)
    ]


@pytest.mark.parametrize("elements", [512, 5000])
@pytest.mark.parametrize("heavy", [1.0, 100.0])
def test_the_sum_is_near_the_exact_one_wherever_the_large_elements_are(
    thc: Protocol, elements: int, heavy: float
) -> None:
    """Four bits with 15 steps from -2.15 to 2.15 standard deviations: clipping and rounding cost about 2 %."""
    inputs = _inputs(8, elements)
    for x in inputs:
        x[-5:] *= heavy
    exact = np.sum(inputs, axis=0, dtype=np.float64)
    error = thc.exact_of_calls(8)(inputs) - exact
    assert 0.01 < (error**2).sum() / (exact**2).sum() < 0.03


def test_what_is_left_out_is_sent_later(thc: Protocol) -> None:
    """The mean of the results of one vector comes near the exact one, although a single result is always clipped."""
    inputs = _inputs(3, 2000)
    exact, of_calls = np.sum(inputs, axis=0, dtype=np.float64), thc.exact_of_calls(3)
    results = [of_calls(inputs) for _ in range(40)]
    errors = [float(np.linalg.norm(np.mean(results[:n], axis=0) - exact)) for n in (1, 10, 40)]
    assert errors[1] < errors[0] / 2.5
    assert errors[2] < errors[0] / 8


def test_the_oracle_refuses_a_sum_in_which_an_element_has_another_value(thc: Protocol) -> None:
    inputs = _inputs(4, 600)
    right = thc.exact_of_calls(4)(inputs)
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 2}
    said = {"protocol": "thc", "size": "1 kB", "topology": {"leaf_spine": shape}}
    oracle = oracle_of(Settings.model_validate(said).settled, "in-network", 8)
    first, second = oracle.promise(inputs), oracle.promise(inputs)
    assert first.hold([right.astype(np.float32)]).violations == 0
    assert first.hold([np.sum(inputs, axis=0)]).violations > 500
    assert second.hold([right.astype(np.float32)]).violations > 500  # it knows what was left out


def test_what_cannot_be_is_refused(thc: Protocol) -> None:
    worker = thc.make_worker(Lease(1, 0, 2, 4), Recovery())
    assert isinstance(worker, SlottedWorker)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="clip or replace them"):
            worker.start(np.array([value], np.float32), 0.0)
        assert worker.finished
    network = leaf_spine(1, 2, 9)
    tree = aggregation_tree(network, Job(1, tuple(host.name for host in network.ranked_hosts)))
    with pytest.raises(ControllerError, match="enough for 17 workers, not 18"):
        thc.planner().plan_aggregation(network, tree)
    assert thc.unusable_in_jobs == "its results are not sums"
    _, indices, sums = thc.packet(256)
    assert sums - indices <= 512  # docs/reference/bmv2.md


# -- scenarios -------------------------------------------------------------------------------------------------------

SCENARIO = """
name = "compressed"
protocol = "thc"
WORLD
workers = 4
links.loss = 0.01
[topology.leaf_spine]
spines = 1
leaves = 2
hosts_per_leaf = 3
rate = "200 Mb/s"
"""


def test_several_jobs_remember_what_they_left_out_and_send_few_bytes(
    adding_switch: Engine, tmp_path: Path
) -> None:
    file = tmp_path / "compressed.toml"
    file.write_text(SCENARIO.replace("WORLD", 'size = "40 kB"\nrepetitions = 3'))
    changes = ["other_job.size=20 kB", "other_job.repetitions=3"]
    (point,) = load_scenario(file, changes).points
    (sums,) = load_scenario(file, [*changes, "protocol=fanin"]).points
    measured = run_virtual(point, adding_switch)
    assert measured.violations == 0
    assert measured.wire_bytes_per_worker < run_virtual(sums, load_switch()).wire_bytes_per_worker / 4


def test_a_training_reaches_the_accuracy_of_exact_sums(adding_switch: Engine, tmp_path: Path) -> None:
    file = tmp_path / "training.toml"
    training = "training = {epochs = 2, batch = 64, hidden = 16}"
    file.write_text(SCENARIO.replace("WORLD", training).replace("links.loss = 0.01", ""))
    (point,) = load_scenario(file).points
    (exact,) = load_scenario(file, ["protocol=fanin"]).points
    curves = [run_virtual(point, adding_switch).curve, run_virtual(exact, load_switch()).curve]
    assert all(curves)
    compressed, sums = (curve.accuracy[-1] for curve in curves if curve)
    assert compressed > sums - 0.05 > 0.5


@pytest.mark.live
def test_in_a_live_network_its_sums_are_right(tmp_path: Path) -> None:
    right_sums_of("thc", tmp_path)
