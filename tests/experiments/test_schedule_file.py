"""A schedule from a file sums rightly, live and in virtual time, or is refused with what is wrong about it."""

from __future__ import annotations

import json
import re
import shutil
import textwrap
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.schedule_file import FileAllReduce
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine
from fanin.workers.host_based.algorithms.registry import ALGORITHMS, algorithm_names
from fanin.workers.host_based.pieces import CHUNK, Piece, Schedule
from fanin.workers.host_based.schedules import ScheduleProgress
from tests.fanin import command

CHAIN = Path(__file__).parents[2] / "examples" / "own-schedule" / "chain.py"
IMPORTS = "from fanin.workers.host_based.pieces import Plan, cut\n"


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], str]:
    def write(body: str) -> str:
        path = tmp_path / "own.py"
        path.write_text(IMPORTS + textwrap.dedent(body))
        return str(path)

    return write


def point(algorithm: str, **rest: Any) -> Settings:
    shape = {"leaf_spine": {"spines": 0, "leaves": 1, "hosts_per_leaf": 4, "rate": "10 Gb/s"}}
    return Settings.model_validate(
        {"topology": shape, "algorithm": algorithm, "size": "400 kB"} | rest
    ).settled


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["selective-repeat", "go-back-n"])
def test_a_chain_sums_rightly_under_loss(switch: Engine, transport: str) -> None:
    settings = point(str(CHAIN), transport=transport, links={"loss": 0.01}, repetitions=3)
    found = run_virtual(settings, switch)
    assert found.violations == 0
    assert found.link_events["lost"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("size", ["40 kB", "400 kB", "4 MB"])
def test_its_time_is_predicted_from_the_schedule(switch: Engine, size: str) -> None:
    found = run_virtual(point(str(CHAIN), size=size), switch)
    assert found.closed_form_seconds == pytest.approx(found.median, rel=0.25)


@pytest.mark.live
@pytest.mark.slow
def test_the_example_sums_rightly_on_a_live_network(tmp_path: Path) -> None:
    example = shutil.copytree(CHAIN.parent, tmp_path / "own-schedule")
    done = command.run(
        *(
            "run",
            "scenario.toml",
            "--set",
            "world=live",
            "--set",
            "rate=50 Mb/s",
            "--set",
            "size=40 kB",
            "--json",
        ),
        cwd=example,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [Path(row["algorithm"]).name for row in rows] == ["in-network", "ring", "chain.py", "ring4.xml"]
    assert [row["violations"] for row in rows] == [0] * 4


@pytest.mark.parametrize("workers", [2, 3, 8])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_follows_from_a_schedule_is_what_algorithms_of_fanin_say_of_theirs(
    name: str, workers: int
) -> None:
    known = ALGORITHMS[name]
    file = FileAllReduce(name, lambda *arguments: known.schedule(*arguments, None))
    inputs = list(np.random.default_rng(workers).standard_normal((workers, 1000), np.float32))
    assert file.float32_sum(inputs).tobytes() == known.float32_sum(inputs).tobytes()
    for size in (
        (1000, 4 * 100_000) if workers != 3 else ()
    ):  # a rank that is left over has messages of its own
        assert file.longest_message(size, workers, None) == pytest.approx(
            known.longest_message(size, workers, None), rel=0.01, abs=8 * workers
        )


def listed(name: str, workers: int, size: int) -> list[tuple[dict[int, list[Piece]], dict[int, list[Piece]]]]:
    schedules = [ALGORITHMS[name].schedule(rank, workers, size, CHUNK, None) for rank in range(workers)]
    sides = [(one.sends, one.receives) for one in schedules]
    return [
        ({p: list(s) for p, s in sends.items()}, {p: list(r) for p, r in receives.items()})
        for sends, receives in sides
    ]


def in_random_order(schedules: Sequence[Schedule], inputs: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Carry out schedules as a network might that delays anything for any time."""
    draw, results = Random(seed), inputs.copy()
    ranks = [ScheduleProgress(one) for one in schedules]
    streams: defaultdict[tuple[int, int], deque[NDArray[np.int64]]] = defaultdict(deque)
    while True:
        choices = [(rank, peer, True) for rank, one in enumerate(ranks) for peer in one.sending]
        choices += [(rank, peer, False) for rank, one in enumerate(ranks) for peer in one.awaiting]
        draw.shuffle(choices)
        for rank, peer, sends in choices:
            if sends and (piece := ranks[rank].next_send(peer)):
                streams[rank, peer].append(results[rank, piece.start : piece.stop].copy())
                break
            if not sends and streams[peer, rank] and (piece := ranks[rank].receiving(peer)):
                part, values = results[rank, piece.start : piece.stop], streams[peer, rank].popleft()
                part[:] = part + values if piece.reduce else values
                ranks[rank].received(peer)
                break
        else:
            return results


@pytest.mark.parametrize("name", ["ring", "halving-doubling", "double-binary-tree", "parameter-server"])
def test_a_schedule_without_one_of_its_waits_is_refused_unless_it_is_right_in_any_order(name: str) -> None:
    workers, size = 4, 11
    ends = listed(name, workers, size)
    inputs = np.arange(workers * size).reshape(workers, size) ** 3
    refused = 0
    for sides in ends:
        for streams in sides:
            for pieces in streams.values():
                for number, piece in enumerate(pieces):
                    if piece.after < 0:
                        continue
                    pieces[number] = piece._replace(after=-1, needed=0)
                    changed = [Schedule(*each) for each in ends]
                    if FileAllReduce("changed", lambda rank, *_, of=changed: of[rank]).problem(workers):
                        refused += 1
                    else:
                        for seed in range(4):
                            assert (in_random_order(changed, inputs, seed) == inputs.sum(axis=0)).all()
                    pieces[number] = piece
    assert refused >= workers


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            """
            def schedule(rank, workers, size, chunk):
                plan = Plan()
                plan.receive((rank - 1) % workers, 0, (0, size), reduce=True)
                plan.send((rank + 1) % workers, (0,), (0, size), ((rank - 1) % workers, (0,)))
                return plan.schedule()
            """,
            "the piece (0,) waits for the piece (0,) from rank 3, of which this rank receives 0",
        ),
        ("def schedule(rank, workers, size, chunk): return 5", "must return a Schedule"),
        ("def schedule(rank, workers, size, chunk): return 1 / 0", ":2: ZeroDivisionError"),
        ("schedule = 5", "schedule is int, must be a function"),
        ("def plan(): pass", "defines none of schedule()"),
        (
            """
            def schedule(rank, workers, size, chunk):
                plan = Plan()
                plan.send(workers, (0,), (0, size))
                return plan.schedule()
            """,
            "rank 0 of 4 sends to or receives from rank 4, which is none",
        ),
        (
            """
            def schedule(rank, workers, size, chunk):
                plan = Plan()
                if rank == 0:
                    plan.send(1, (0,), (0, size - 1))
                if rank == 1:
                    plan.receive(0, (0,), (0, size), reduce=True)
                return plan.schedule()
            """,
            "rank 0 sends elements 0 to 9 to rank 1, which expects elements 0 to 10",
        ),
        (
            """
            def schedule(rank, workers, size, chunk):
                plan, next, previous = Plan(), (rank + 1) % workers, (rank - 1) % workers
                plan.receive(previous, (0,), (0, size), reduce=True)
                plan.send(next, (0,), (0, size), (previous, (0,)))
                return plan.schedule()
            """,
            "ranks wait for one another without end: rank 0 waits for rank 3",
        ),
        (
            """
            def schedule(rank, workers, size, chunk):
                plan = Plan()
                if rank == 0:
                    for peer in range(1, workers - 1):
                        plan.receive(peer, (0,), (0, size), (peer - 1, (0,)) if peer > 1 else None, reduce=True)
                elif rank < workers - 1:
                    plan.send(0, (0,), (0, size))
                return plan.schedule()
            """,
            "rank 0 of 4 ends with a wrong element 0 of 11: without the value of rank 3",
        ),
        (
            """
            def schedule(rank, workers, size, chunk):
                plan, latest = Plan(), None
                for step in (1, 2):
                    peer = rank ^ step
                    plan.send(peer, (step,), (0, size), latest)
                    plan.receive(peer, (step,), (0, size), latest, reduce=True)
                    latest = peer, (step,)
                return plan.schedule()
            """,
            "in an order that is not certain: in a piece from rank 0, and in one to rank 0",
        ),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(written: Callable[[str], str], body: str, words: str) -> None:
    with pytest.raises(ValidationError, match=f"algorithm: .*own.py.*{re.escape(words)}") as refused:
        point(written(body))
    assert len(refused.value.errors()) == 1


def test_an_algorithm_of_a_file_is_no_candidate_for_auto() -> None:
    point(str(CHAIN))
    assert str(CHAIN) not in algorithm_names()


def test_the_schedule_of_the_manual_sums_rightly(tmp_path: Path) -> None:
    page = (CHAIN.parents[2] / "docs" / "how-to" / "schedule.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    path = tmp_path / "manual.py"
    path.write_text(code)
    assert point(str(path)).algorithm == str(path)
