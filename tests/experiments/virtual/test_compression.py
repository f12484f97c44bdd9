"""All-reduces of compressed vectors in virtual time: right up to what compression changes, in the time of its bytes."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from fanin.experiments.results.measured import Row, row
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

pytestmark = pytest.mark.slow

RACKS = {"spines": 2, "leaves": 2, "hosts_per_leaf": 4, "rate": "100 Gb/s", "uplink_rate": "400 Gb/s"}
BITS = {"8-bit": 8, "4-bit": 4}
KINDS = ["top-k", *BITS]


def point(kind: str, **changes: Any) -> Settings:
    document = {"topology": {"leaf_spine": RACKS}, "size": "800 kB", "algorithm": "ring", "window": 256}
    compression = {"kind": kind} | changes.pop("compression", {})
    return Settings.model_validate(document | changes | {"compression": compression}).settled


def run(switch: Engine, kind: str, **changes: Any) -> Row:
    settings = point(kind, **changes)
    return row(settings, run_virtual(settings, switch))


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "size"), [("top-k", "4 MB"), *((kind, "2 MB") for kind in BITS)])
def test_sums_are_within_what_compression_changes_in_the_time_of_the_closed_form(
    switch: Engine, kind: str, size: str
) -> None:
    found = run(switch, kind, size=size, repetitions=2)
    assert found["violations"] == 0
    assert 0.01 < found["max_abs_error"] <= found["error_bound"]
    assert found["median_seconds"] == pytest.approx(found["closed_form_seconds"], rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lost_is_sent_again(switch: Engine, kind: str) -> None:
    found = run(switch, kind, links={"loss": 0.01})
    assert found["violations"] == 0
    assert found["retransmissions"] > 0


def test_all_of_the_values_are_the_sum_of_float32(switch: Engine) -> None:
    found = run(switch, "top-k", size="200 kB", compression={"density": 1.0})
    assert found["violations"] == 0
    assert found["max_abs_error"] < 1e-5


def test_each_host_sends_all_others_and_gets_theirs(switch: Engine) -> None:
    """7 vectors of b bits a value and 32 for each 256 out and in, in the place of 14 eighths of 32 bits."""
    whole = run(switch, "none")["wire_bytes_per_worker"]
    for kind, bits in BITS.items():
        share = 7 * (bits + 32 / 256) / (14 / 8 * 32)
        assert run(switch, kind)["wire_bytes_per_worker"] / whole == pytest.approx(share, rel=0.02)


def test_buckets_are_compressed_one_by_one(switch: Engine) -> None:
    found = run(switch, "4-bit", step={"forward": "1 ms", "backward": "1 ms", "bucket": "100 kB"})
    assert found["violations"] == 0


def test_in_network_there_is_none() -> None:
    assert point("4-bit", algorithm="in-network").compression.kind == "none"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"algorithm": "halving-doubling"}, "compression: works with a ring only; set algorithm = 'ring'"),
        ({"collective": "all-gather"}, "compression: works with a ring only"),
        ({"compression": {"density": 0, "kind": "top-k"}}, "greater than 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValidationError) as caught:
        point("8-bit", **changes)
    assert complaint in str(caught.value)


def test_a_density_is_of_top_k_alone() -> None:
    """So a list of kinds may have one beside it."""
    given = {"density": 0.1}
    assert point("top-k", compression=given).compression.density == 0.1
    assert point("8-bit", compression=given) == point("8-bit")
