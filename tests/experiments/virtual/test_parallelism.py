"""Steps of a model that is cut among workers: as long as the closed form, whatever is sent is what arrives."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.host_based.exchange import Exchange
from tests.experiments.pipeline import bubble_share
from tests.experiments.virtual.cut_models import cuts, point, run
from tests.sizes import sized

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_pipeline_idles_for_the_share_of_the_closed_form(
    switch: Engine, schedule: str, stages: int
) -> None:
    measured = run(switch, {"pipeline": stages, "schedule": schedule})
    each = stages  # of 8 micro-batches and 8 / stages copies
    assert measured.gpu_idle_share == pytest.approx(bubble_share(stages, each), abs=0.02)
    assert measured.step_seconds == pytest.approx((each + stages - 1) * 12e-3 / stages, rel=0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize(("stages", "chunks"), [(2, 4), (4, 2), (4, 4)])
def test_interleaved_stages_idle_for_less(switch: Engine, stages: int, chunks: int) -> None:
    cut = {"pipeline": stages, "chunks": chunks, "layers": 16, "micro_batches": 16}
    measured = run(switch, cut)
    each = 16 * stages // 8
    assert measured.gpu_idle_share == pytest.approx(bubble_share(stages, each, chunks), abs=0.02)
    assert measured.step_seconds == pytest.approx((each + (stages - 1) / chunks) * 12e-3 / stages, rel=0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["in-network", "ring", "halving-doubling"])
def test_all_cuts_compute_as_much_and_sum_what_they_must(switch: Engine, algorithm: str) -> None:
    for tensor, stages in ((1, 1), (2, 1), (2, 2), (4, 2), (1, 8)):
        layers = max(stages, 2)
        cut = {"tensor": tensor, "pipeline": stages, "layers": layers, "activations": "4 KiB"}
        measured = run(switch, cut, algorithm=algorithm, size="64 KiB", repetitions=1)
        assert measured.max_abs_error > 0 or stages == 8  # nothing but a pipeline sums nothing
        assert measured.step_seconds
        assert measured.step_seconds - measured.wait_seconds == pytest.approx(12e-3)
        assert measured.exposed_seconds == pytest.approx(measured.wait_seconds)


def test_the_bytes_of_a_worker_are_those_of_its_groups(switch: Engine) -> None:
    """In a tensor group of 2 an all-reduce sends the activations once; each of 4 copies its gradient 1.5 times."""
    measured = run(switch, {"tensor": 2})
    layers, each, activations = 8, 2, 16 * 1024
    sums = 2 * 2 * layers * each  # forward and backward, twice in each layer
    payload = 2 * (sums * activations + 1.5 * 128 * 1024)  # sent and received
    assert 1.0 < measured.wire_bytes_per_worker / payload < 1.15


def test_all_wait_for_a_slow_stage(switch: Engine) -> None:
    """Which is never idle but at the beginning and at the end, when the one before it computes."""
    cut = {"pipeline": 4, "micro_batches": 16, "stragglers": [{"host": "h3", "factor": 2}]}
    assert run(switch, cut).step_seconds == pytest.approx(8 * 6e-3 + 3e-3, rel=0.05)


@pytest.mark.few(1)
@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
def test_what_is_lost_is_sent_again(switch: Engine, transport: str) -> None:
    links = {"loss": "1%", "reordering": "5%", "displacement": "20 us"}
    for algorithm in ("in-network", "ring"):
        measured = run(
            switch,
            {"tensor": 2, "pipeline": 2, "layers": 2, "micro_batches": 4, "activations": "8 KiB"},
            algorithm=algorithm,
            transport=transport,
            links=links,
        )
        assert measured.retransmissions > 0


LINKS = st.fixed_dictionaries(
    {"delay": st.sampled_from(["0 us", "5 us"]), "displacement": st.just("50 us")},
    optional={
        "loss": st.sampled_from([0.001, 0.05]),
        "duplication": st.just(0.2),
        "reordering": st.sampled_from([0.01, 0.3]),
        "jitter": st.just("5 us"),
        "ecn_bytes": st.just(3000),
        "pause": st.just({"xoff_bytes": 20_000, "xon_bytes": 10_000}),
    },
)


@pytest.mark.few(0)
@settings(max_examples=sized(4, 40))
@given(drawn=cuts(), links=LINKS)
def test_every_cut_sums_and_sends_what_it_must_whatever_links_do(
    switch: Engine, drawn: tuple[dict[str, Any], dict[str, Any]], links: dict[str, Any]
) -> None:
    cut, rest = drawn
    assert len(run(switch, cut, links=links, **rest).seconds) == 2


def test_a_wrong_activation_is_found(switch: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Exchange.finish
    calls = count()

    def wrong(self: Exchange) -> NDArray[np.float32]:
        result = finish(self)
        if self.operation == "broadcast" and next(calls) == 5:
            result[7] += 1
        return result

    monkeypatch.setattr(Exchange, "finish", wrong)
    assert run_virtual(point({"pipeline": 2}), switch).violations == 1


def test_a_run_can_be_repeated(switch: Engine) -> None:
    links = {"loss": "1%"}
    cut = {"tensor": 2, "pipeline": 2, "layers": 2, "micro_batches": 4}
    first, second = (run(switch, cut, links=links) for _ in range(2))
    assert first == second
