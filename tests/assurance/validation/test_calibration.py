"""Alpha and beta are found from times, predict sizes held out, and the document shows what was found."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from fanin.assurance.validation.calibration import FITTED, HELD_OUT, WORKERS, Fit, calibrate, settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import HostBasedAlgorithm
from fanin.workers.host_based.algorithms.all_reduce import Hosts
from fanin.workers.host_based.algorithms.registry import ALGORITHMS, algorithm_named, algorithm_names
from tests.sizes import sized

COMPARED = algorithm_names()[: sized(2, None)]
DOCUMENT = Path(__file__).parents[3] / "docs" / "explanation" / "validation.md"


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_times_of_a_closed_form_give_back_its_latency_and_bandwidth(algorithm: HostBasedAlgorithm) -> None:
    times = [
        (size, algorithm_named(algorithm).seconds(size, Hosts(WORKERS, lambda *_: 6e-6, 11e9)))
        for size in FITTED  # ring has sizes on both sides of its maximum
    ]
    fit = Fit.through(algorithm, times)
    assert (fit.alpha, 1 / fit.beta) == pytest.approx((6e-6, 11e9), rel=1e-4)


@pytest.mark.slow
def test_a_full_window_costs_a_parameter_server_no_time(switch: Engine) -> None:
    """A connection carries 500 packets with a window of 256; no worker waits until those of all others have left."""
    measured = run_virtual(settings("parameter-server", 2_048_000), switch)
    assert measured.median == pytest.approx(measured.closed_form_seconds, rel=0.05)


@pytest.mark.few(0)
@pytest.mark.long
@pytest.mark.slow
def test_algorithms_predict_sizes_held_out_and_the_document_shows_each_error(switch: Engine) -> None:
    sizes = len(FITTED + HELD_OUT)
    found = list(islice(calibrate(switch), sizes * len(COMPARED)))
    assert {one.algorithm for one in found} == set(COMPARED)
    held_out = [one for one in found if one.held_out]
    assert len(held_out) == len(HELD_OUT) * len(COMPARED)
    assert all(one.agrees for one in held_out)
    rows = [f"| {' | '.join(one.cells)} |" for one in found]
    shown = DOCUMENT.read_text().splitlines()
    told = [line for line in shown if "| fitted |" in line or "| held out |" in line]
    assert told[: len(rows)] == rows
    assert len(told) == sizes * len(algorithm_names())
