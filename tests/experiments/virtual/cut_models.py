"""Points with a model that is cut among workers, one by one and drawn, and runs of them in virtual time."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

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
