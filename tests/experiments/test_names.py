"""Which names a person means who writes one that does not exist."""

from __future__ import annotations

import pytest

from fanin.experiments.names import instead, likely
from fanin.experiments.scenario.settings import KEYS

COLUMNS = [
    "delay",
    "lateness",
    "median_seconds",
    "goodput_bits_per_second",
    "retransmissions",
    "workers",
    "loss",
]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("latency", ["delay"]),  # and not lateness, which is spelled nearly the same
        ("link_latency", ["delay"]),
        ("bandwidth", ["rate"]),
        ("gpus", ["workers"]),
        ("packet_loss", ["loss"]),
        ("iterations", ["repetitions"]),
        ("buffer_size", ["queue_bytes"]),
        ("ecn_threshold", ["ecn_bytes"]),
        ("timeout", ["initial_rto", "min_rto"]),
        ("algo", ["algorithm"]),
        ("loss_burst", ["burst_loss"]),
        ("sizes", ["size"]),
        ("widow", ["window"]),
        ("trafic_fan", ["traffic_fan"]),
        ("zebra", []),
    ],
)
def test_a_key_is_suggested_by_its_meaning_then_by_its_words_then_by_its_spelling(
    name: str, meant: list[str]
) -> None:
    assert likely(name, [*KEYS]) == meant


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("latency", ["delay", "median_seconds"]),
        ("throughput", ["goodput_bits_per_second"]),
        ("time", ["median_seconds"]),
        ("resent", ["retransmissions"]),
    ],
)
def test_a_column_of_results_is_suggested(name: str, meant: list[str]) -> None:
    assert likely(name, COLUMNS) == meant


def test_a_few_names_are_listed_and_for_many_it_is_stated_how_to_see_them() -> None:
    assert instead("zebra", ["a", "b"], "letters", "see the alphabet") == "; there are a, b"
    many = [f"n{number}" for number in range(99)]
    assert instead("zebra", many, "numbers", "count") == "; for all 99 numbers, count"
