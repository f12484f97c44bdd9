"""Steps of a model that is cut among workers: as long as the closed form, whatever is sent is what arrives."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from experiments.models.pipeline import bubble_share
from experiments.results.measured import Measured
from experiments.scenario.settings import Settings
from experiments.virtual.point import run_virtual
from p4switch.engine.engine import Engine
from tests.sizes import sized
from workers.host_based.exchange import Exchange

pytestmark = pytest.mark.slow

ALGORITHMS = ["in-network", "ring", "halving-doubling", "double-binary-tree", "parameter-server"]
CUT = {
    "layers": 8,
    "micro_batches": 8,
    "forward": "4 ms",
    "backward": "8 ms",
    "activations": "16 KiB",
}


def point(cut: dict[str, Any], **rest: Any) -> Settings:
    shape = {"spines": 2, "leaves": 2, "hosts_per_leaf": 4, "rate": "100 Gb/s"}
    said = {"topology": {"leaf_spine": shape}, "algorithm": "ring", "size": "256 KiB", "repetitions": 2}
    table = {key: value for key, value in (CUT | cut).items() if value is not None}
    return Settings.model_validate(said | {"parallelism": table} | rest).settled


def run(switch: Engine, cut: dict[str, Any], **rest: Any) -> Measured:
    measured = run_virtual(point(cut, **rest), switch)
    assert measured.violations == 0
    return measured


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_pipeline_idles_for_the_share_of_the_closed_form(
    switch: Engine, schedule: str, stages: int
) -> None:
    measured = run(switch, {"pipeline": stages, "schedule": schedule})
    each = stages  # of 8 micro-batches and 8 / stages copies
    assert measured.gpu_idle_share == pytest.approx(bubble_share(stages, each), abs=0.02)
    assert measured.step_seconds == pytest.approx((each + stages - 1) * 12e-3 / stages, rel=0.05)


@pytest.mark.parametrize(("stages", "chunks"), [(2, 4), (4, 2), (4, 4)])
def test_interleaved_stages_idle_for_less(switch: Engine, stages: int, chunks: int) -> None:
    cut = {"pipeline": stages, "chunks": chunks, "layers": 16, "micro_batches": 16}
    measured = run(switch, cut)
    each = 16 * stages // 8
    assert measured.gpu_idle_share == pytest.approx(bubble_share(stages, each, chunks), abs=0.02)
    assert measured.step_seconds == pytest.approx((each + (stages - 1) / chunks) * 12e-3 / stages, rel=0.05)


@pytest.mark.parametrize("algorithm", ["in-network", "ring", "halving-doubling"])
def test_all_cuts_compute_as_much_and_sum_what_they_must(switch: Engine, algorithm: str) -> None:
    for tensor, stages in ((1, 1), (2, 1), (2, 2), (4, 2), (1, 8)):
        cut = {"tensor": tensor, "pipeline": stages, "activations": "4 KiB"}
        measured = run(switch, cut, algorithm=algorithm, size="64 KiB")
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


@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
def test_what_is_lost_is_sent_again(switch: Engine, transport: str) -> None:
    links = {"loss": "1%", "reordering": "5%", "displacement": "20 us"}
    for algorithm in ("in-network", "ring"):
        measured = run(
            switch,
            {"tensor": 2, "pipeline": 2, "activations": "8 KiB"},
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


CUTS = st.fixed_dictionaries(
    {
        "algorithm": st.sampled_from(ALGORITHMS),
        "placement": st.sampled_from(["packed", "spread", "random"]),
        "window": st.sampled_from([1, 16, 64]),
        "transport": st.sampled_from(["selective-repeat", "go-back-n"]),
        "paths": st.sampled_from(["ecmp", "spray"]),
    }
)


@st.composite
def cuts(draw: st.DrawFn, fewest_copies: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
    """A table, in buckets or not, and what else a scenario says."""
    tensor, stages, copies = (
        draw(st.integers(1, 3)),
        draw(st.integers(1, 3)),
        draw(st.integers(fewest_copies, 3)),
    )
    workers = tensor * stages * copies
    assume(workers > 1)
    chunks = draw(st.integers(1, 3)) if stages > 1 else 1
    rounds = draw(st.integers(1, 4))  # micro-batches of a copy, or of a round
    values = draw(st.integers(1, 3000))
    cut = {
        "tensor": tensor,
        "pipeline": stages,
        "layers": stages * chunks * (draw(st.integers(1, 3)) if tensor == 1 else 1),
        "chunks": chunks,
        "micro_batches": copies * rounds * (stages if chunks > 1 else 1),
        "schedule": draw(st.sampled_from(["gpipe", "1f1b"])) if chunks == 1 else "1f1b",
        "forward": draw(st.sampled_from(["0 us", "20 us"])),
        "activations": f"{4 * draw(st.integers(1, 5000))} B",
        "bucket": draw(st.none() | st.integers(1, 5).map(lambda count: f"{4 * -(-values // count)} B")),
    }
    topology = {"leaf_spine": {"spines": 2, "leaves": 7, "hosts_per_leaf": 4, "rate": "25 Gb/s"}}
    size = f"{tensor * stages * values} elements"
    return cut, draw(CUTS) | {"workers": workers, "size": size, "topology": topology}


@settings(max_examples=sized(8, 40))
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
    first, second = (run(switch, {"tensor": 2, "pipeline": 2}, links=links) for _ in range(2))
    assert first == second
