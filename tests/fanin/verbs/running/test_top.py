"""The output of `fanin top` for two snapshots, and how it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import typer
from rich.console import Console

from fanin.controller.jobs.reports import WorkerState
from fanin.testbed import job_service_client as client
from fanin.testbed.monitoring.snapshot import FormingView, JobView, LinkView, Snapshot, SwitchView
from fanin.verbs.running import top
from tests.testbed.monitoring.snapshots import NOW, job, waiting, worker


def received(found: WorkerState, count: int, heard: float) -> WorkerState:
    assert found.report
    report = found.report.model_copy(update={"bytes_received": count, "retransmissions": 2})
    return found.model_copy(update={"report": report, "heard": heard})


def look(at: float, jobs: tuple[JobView, ...], count: int, *, up: bool = True) -> Snapshot:
    link = LinkView(
        sender="leaf1",
        receiver="h1",
        rate=100_000_000,
        up=up,
        packets=count,
        bytes=1000 * count,
        lost=count // 10,
        queue_bytes=60_000,
    )
    switch = SwitchView(slots=128, received=count, drops={"TTL": 7, "MISMATCH": count // 100})
    forming = FormingView(name="late", hosts=("h1", "h2"), workers=(worker("h1", None),), missing=("h2",))
    gone = SwitchView(slots=0, error="leaf2 has not answered for 2 s")
    return Snapshot(
        at=at, jobs=jobs, forming=(forming,), switches={"leaf1": switch, "leaf2": gone}, links=(link,)
    )


def shown(now: Snapshot, before: Snapshot) -> list[str]:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(*top._tables(now, before), highlight=False)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def test_rates_are_those_between_the_looks() -> None:
    hosts = ("h1", "h2")
    before = look(NOW - 2, (job(*(received(worker(h, 3), 1_000_000, NOW - 2.5) for h in hosts)),), 1000)
    now = look(NOW, (job(*(received(worker(h, 9), 6_000_000, NOW - 0.5) for h in hosts)),), 3000)
    lines = shown(now, before)
    assert "train in network 0:01:40 2 4 16 20 4 1" in lines
    assert "leaf1 TTL 7, MISMATCH 30 (10) 1,000 128" in lines
    assert "leaf2 leaf2 has not answered for 2 s 0" in lines
    assert "leaf1 → h1 8 100 8% 60 300" in lines


def test_who_is_waited_for_is_told_and_a_link_that_is_down() -> None:
    stands = job(worker("h1", 7, waiting(8)), worker("h2", 7, heard=20))
    queued = job(
        worker("h3", None), name="next", state="queued", place=1, why="no slots", slots=None, lease=None
    )
    now = look(NOW, (stands, queued), 5, up=False)
    lines = shown(now, now)
    assert "train in network h2, 6 s 0:01:40 2 4 16 0 0 1" in lines
    assert "next queued, number 1 no slots 0:01:40 1" in lines
    assert "late forming h2 to join 0:01:40 1" in lines
    assert any(line.startswith("leaf1 → h1") and line.endswith("0 down") for line in lines)


def with_window(found: WorkerState, chunks: float) -> WorkerState:
    assert found.report
    report = found.report.model_copy(update={"congestion_window": chunks})
    return found.model_copy(update={"report": report})


def test_the_window_is_the_smallest_of_the_workers_and_only_of_a_job_with_slots() -> None:
    members = with_window(worker("h1", 3), 3.9), with_window(worker("h2", 3), 2.6), worker("h3", None)
    by_ring = job(*members, name="ring", state="using the ring", slots=None, lease=None)
    now = look(NOW, (job(*members), by_ring), 5)
    lines = shown(now, now)
    assert any(line.startswith("train in network 0:01:40 3 4 2 ") for line in lines)
    assert any(line.startswith("ring using the ring 0:01:40 3 0 1") for line in lines)


def test_a_switch_that_has_restarted_has_no_rate() -> None:
    lines = shown(look(NOW, (), 5), look(NOW - 1, (), 1000))
    assert any(line.startswith("leaf1 TTL 7, MISMATCH 0 128") for line in lines)


@pytest.mark.parametrize("terminal", [True, False])
def test_it_goes_on_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    looks = 0

    class Service:
        def look(self) -> dict[str, Any]:
            nonlocal looks
            looks += 1
            if looks == 4:
                raise KeyboardInterrupt
            return look(NOW + looks, (), 10 * looks).model_dump(mode="json")

    def without(_: float) -> None:
        """No pause."""

    monkeypatch.setattr(top, "find_network", lambda **_: SimpleNamespace(run=None))
    monkeypatch.setattr(client, "JobServiceClient", lambda _: Service())
    monkeypatch.setattr(top.time, "sleep", without)
    console, wide = Console(width=150, force_terminal=terminal), Console(width=300)
    for module in ("console", "table"):
        monkeypatch.setattr(f"fanin.{module}.console", console)
    monkeypatch.setattr("fanin.table.wide", wide)  # for a file, whose lines are not to be folded
    with (console if terminal else wide).capture() as capture, pytest.raises(typer.Exit) as ended:
        top.top(seconds=1.0, once=False, as_json=False, supervisor=None)
    assert ended.value.exit_code == 130
    assert looks == 4
    assert "leaf1 → h1" in capture.get()
