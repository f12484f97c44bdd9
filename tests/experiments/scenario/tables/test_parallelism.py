"""The table `parallelism`: which rank has which part of the model, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tables.parallelism import Parallelism

CUT = {
    "tensor": 2,
    "pipeline": 2,
    "layers": 4,
    "micro_batches": 4,
    "forward": "1 ms",
    "backward": "2 ms",
    "activations": "16 KiB",
}


def settings(cut: dict[str, Any], **rest: Any) -> Settings:
    shape = {"spines": 1, "leaves": 2, "hosts_per_leaf": 4, "rate": "10 Gb/s"}
    said = {"topology": {"leaf_spine": shape}, "algorithm": "ring", "size": "64 KiB", "parallelism": cut}
    return Settings.model_validate(said | rest).settled


@given(tensor=st.integers(1, 4), stages=st.integers(1, 4), copies=st.integers(1, 4))
def test_ranks_are_those_of_a_tensor_group_then_copies_then_stages(
    tensor: int, stages: int, copies: int
) -> None:
    cut = Parallelism(tensor=tensor, pipeline=stages, forward=1e-3, backward=1e-3)
    workers = tensor * stages * copies
    places = [cut.coordinates(rank, workers) for rank in range(workers)]
    assert places == sorted(places, key=lambda at: (at.stage, at.data, at.tensor))
    assert [cut.rank(at, workers) for at in places] == list(range(workers))
    groups = cut.data_groups(workers)
    assert sorted(rank for group in groups for rank in group) == list(range(workers))
    for group in groups:
        assert len(group) == copies
        assert len({(places[rank].tensor, places[rank].stage) for rank in group}) == 1


def test_eight_ranks_are_grouped_as_megatron_groups_them() -> None:
    table = settings(CUT).parallelism
    assert table
    assert table.data_groups(8) == [[0, 2], [1, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize(
    ("change", "rest", "said"),
    [
        ({"tensor": 3}, {}, "parallelism: tensor x pipeline is 6, which does not divide the 8 workers"),
        ({"micro_batches": 3}, {}, "parallelism.micro_batches: is 3, must be a multiple of the 2 copies"),
        ({"layers": 3}, {}, "parallelism.layers: is 3, must be a multiple of the 2 stages"),
        ({"chunks": 4}, {}, "parallelism.layers: is 4, must be a multiple of the 2 stages times 4 chunks"),
        ({"chunks": 2, "pipeline": 1}, {}, "parallelism.chunks: need several stages and schedule = '1f1b'"),
        (
            {"chunks": 2, "schedule": "gpipe"},
            {},
            "parallelism.chunks: need several stages and schedule = '1f1b'",
        ),
        (
            {"chunks": 2, "micro_batches": 6},
            {},
            "parallelism.micro_batches: are 3 for each copy, must be a multiple",
        ),
        ({}, {"size": "20 B"}, "size: must be a multiple of 16 bytes"),
        ({"activations": None}, {}, "parallelism.activations: missing"),
        (
            {"stragglers": [{"host": "h9", "factor": 2}]},
            {},
            "parallelism.stragglers: h9 is not a worker's host",
        ),
        ({}, {"step": {"forward": 1e-3, "backward": 1e-3}}, "step: cannot be combined with parallelism"),
        ({}, {"collective": "broadcast"}, "collective: cannot be combined with parallelism"),
        ({}, {"faults": [{"at": 1e-3, "worker": "h1"}]}, "faults: cannot be combined with parallelism"),
        ({}, {"world": "live"}, "parallelism: is virtual only"),
        ({}, {"algorithm": "in-network", "window": 300}, "window: is 300 for each of 4 sums at once"),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(
    change: dict[str, Any], rest: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        settings(CUT | change, **rest)


def test_switches_know_so_many_groups_at_once() -> None:
    shape = {"spines": 1, "leaves": 8, "hosts_per_leaf": 5, "rate": "10 Gb/s"}
    cut = CUT | {"tensor": 20, "pipeline": 1}
    with pytest.raises(ValidationError, match="needs 20 sums of gradients, but switches make 16"):
        settings(cut, topology={"leaf_spine": shape}, algorithm="in-network", size="80 KiB")


def test_without_stages_all_schedules_are_one() -> None:
    first, second = (settings(CUT | {"pipeline": 1, "schedule": name}) for name in ("gpipe", "1f1b"))
    assert first.key == second.key
