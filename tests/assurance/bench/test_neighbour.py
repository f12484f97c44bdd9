"""A neighbour keeps a core busy next to a benchmark while its context is entered, and at no other time."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from fanin.assurance.bench import neighbour
from fanin.assurance.bench.neighbour import KINDS, NOTHING, Neighbour, NeighbourError, neighbours

WORKING = [kind for kind in KINDS if kind != NOTHING]


def processor_ticks(process: int) -> int:
    """Return how many ticks of the processor it has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORKING)
def test_it_works_while_it_is_entered_and_rests_else(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "caches", lambda: {"L1d": 1 << 15, "L2": 1 << 20})
    with ExitStack() as stack:
        found = neighbours([NOTHING, kind], stack)
        with found[NOTHING]:
            pass
        busy = found[kind]
        assert isinstance(busy, Neighbour)
        process = busy._process.pid
        for _ in range(2):
            before = processor_ticks(process)
            with busy:
                while processor_ticks(process) < before + 2:
                    pass
            os.waitid(os.P_PID, process, os.WSTOPPED)
    assert not Path(f"/proc/{process}").exists()


def test_a_loop_held_to_a_core_may_use_one_only() -> None:
    with ExitStack() as stack:
        busy = neighbours([neighbour.BOUND_LOOP], stack)[neighbour.BOUND_LOOP]
        assert isinstance(busy, Neighbour)
        assert os.sched_getaffinity(busy._process.pid) == {max(os.sched_getaffinity(0))}


def test_a_cache_whose_size_is_not_known_cannot_be_walked_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "caches", dict)
    with (
        ExitStack() as stack,
        pytest.raises(NeighbourError, match="does not say how large the caches are: leave out cache-walk"),
    ):
        neighbours([neighbour.CACHE_WALK], stack)
