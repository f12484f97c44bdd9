"""The reason why a chunk waits, by the cells of the switches, and who is blamed for it."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.controller.jobs.reports import WorkerState
from fanin.testbed.monitoring.snapshot import Cell, Cells, LinkView, Snapshot, SwitchView
from fanin.testbed.monitoring.why import Explanation, Hop, explain
from tests.testbed.monitoring.snapshots import NOW, job, two_on_each_host, waiting, worker

# Slots 0 to 3; chunk 6 is the second time that slot 2 is used.
CHUNK, PLACE = 6, 2 * 2 + 1
ALL = tuple(worker(host, 7, waiting(8, chunks=((CHUNK, CHUNK),))) for host in ("h1", "h2", "h3", "h4"))
ENDS = [
    ("h1", "leaf1"),
    ("h2", "leaf1"),
    ("h3", "leaf2"),
    ("h4", "leaf2"),
    ("leaf1", "spine1"),
    ("leaf2", "spine1"),
]


def cells(**seen: int | str) -> dict[str, Cells]:
    """Return what each switch has of the chunk: bits seen, "done", or nothing of it."""

    def held(found: int | str | None) -> Cell:
        if found is None:
            return Cell(lease=7, chunk=CHUNK - 4, seen=3, done=True)
        return Cell(lease=7, chunk=CHUNK, seen=0 if found == "done" else int(found), done=found == "done")

    empty = Cell(lease=0, chunk=0, seen=0, done=False)
    return {
        switch: Cells(cells=dict.fromkeys(range(8), empty) | {PLACE: held(seen.get(switch))})
        for switch in ("leaf1", "leaf2", "spine1")
    }


def look(at: float = NOW, down: tuple[str, str] | None = None, lost: int = 0, **drops: int) -> Snapshot:
    ways = [way for a, b in ENDS for way in ((a, b), (b, a))]
    known: dict[str, Any] = {"rate": None, "packets": 0, "bytes": 0, "queue_bytes": None, "lost": lost}
    links = [LinkView(sender=a, receiver=b, up=(a, b) != down, **known) for a, b in ways]
    switches = {switch: SwitchView(slots=4, drops=drops) for switch in ("leaf1", "leaf2", "spine1")}
    return Snapshot(at=at, jobs=(), forming=(), switches=switches, links=tuple(links))


def explained(
    *workers: WorkerState, now: Snapshot | None = None, held: dict[str, Cells] | None = None, **does: str
) -> Explanation:
    return explain(
        job(*(workers or ALL)),
        held or cells(leaf1=3),
        now or look(),
        look(NOW - 2),
        {int(host[1:]) + 100: what for host, what in does.items()},
    )


@pytest.mark.parametrize(
    ("held", "hops"),
    [
        ({}, {Hop(f"h{n}", f"leaf{(n + 1) // 2}", "update") for n in (1, 2, 3, 4)}),
        ({"leaf1": 1, "leaf2": 3}, {Hop("h2", "leaf1", "update"), Hop("leaf2", "spine1", "sum")}),
        ({"leaf1": 3, "leaf2": 2, "spine1": 1}, {Hop("h3", "leaf2", "update")}),
        ({"leaf1": 3, "leaf2": 3, "spine1": 1}, {Hop("leaf2", "spine1", "sum")}),
        (
            {"leaf1": 3, "leaf2": 3, "spine1": "done"},
            {Hop("spine1", "leaf1", "result"), Hop("spine1", "leaf2", "result")},
        ),
        (
            {"leaf1": "done", "leaf2": 3, "spine1": "done"},
            {Hop("leaf1", "h1", "result"), Hop("leaf1", "h2", "result"), Hop("spine1", "leaf2", "result")},
        ),
    ],
)
def test_each_chunk_is_followed_to_where_it_has_come(held: dict[str, int | str], hops: set[Hop]) -> None:
    found = explained(held=cells(**held))
    assert {missing.hop for missing in found.missing} == hops
    assert {missing.chunks for missing in found.missing} == {((CHUNK, CHUNK),)}


def test_who_has_not_come_is_blamed_with_what_its_process_does() -> None:
    found = explained(
        *ALL[:3], worker("h4", 7, heard=12), held=cells(leaf1=3, leaf2=1, spine1=1), h4="is stopped"
    )
    assert found.culprit == (
        "Most likely the worker on h4, without which the others cannot continue (h4: process 104 is stopped, had "
        "finished all-reduce 7 at its last report, 12 s ago)."
    )


def test_a_link_that_is_down_is_blamed_where_all_have_come() -> None:
    found = explained(held=cells(leaf1=3, leaf2=1, spine1=1), now=look(down=("h4", "leaf2")))
    assert found.culprit == "Most likely the path from h4 to leaf2: the link h4 → leaf2 is down."


def test_a_link_elsewhere_is_not() -> None:
    found = explained(held=cells(leaf1=3, leaf2=1, spine1=1), now=look(down=("h1", "leaf1")))
    assert found.culprit == "h4's update for leaf2 does not arrive, and nothing shows where it is lost."


def test_drops_are_blamed_but_for_those_of_what_is_sent_again() -> None:
    held = cells(leaf1=3, leaf2=1, spine1=1)
    assert explained(held=held, now=look(MISMATCH=4, DUPLICATE=9)).culprit == (
        "Most likely the path from h4 to leaf2: leaf2 drops: MISMATCH 4 in 2 s."
    )
    assert "does not arrive" in explained(held=held, now=look(DUPLICATE=9)).culprit


def test_a_switch_that_does_not_answer_is_blamed_first() -> None:
    now = look()
    gone = SwitchView(slots=4, error="leaf2 has not answered for 2 s")
    now = now.model_copy(update={"switches": now.switches | {"leaf2": gone}})
    held = cells(leaf1=3) | {"leaf2": Cells(error="leaf2 has not answered for 10 s")}
    found = explained(now=now, held=held)
    assert (found.missing, found.unknown) == ((), "leaf2: leaf2 has not answered for 10 s")
    assert found.culprit == "Most likely the switch leaf2: leaf2 has not answered for 2 s."


def test_a_switch_that_has_lost_its_registers_is_told_by_workers_that_have_the_result() -> None:
    found = explained(*ALL[:3], worker("h4", 8), held=cells(leaf1=3))
    assert found.culprit.startswith(
        "Most likely leaf2 has lost what it held (was it restarted?): h4, whose update"
    )


def test_without_cells_reports_and_links_have_to_do() -> None:
    held = {switch: Cells(error="no register reads") for switch in ("leaf1", "leaf2", "spine1")}
    late = explained(*ALL[:3], worker("h4", 7, heard=12), held=held)
    assert late.unknown.startswith("leaf1: no register reads")
    assert late.culprit.startswith("Most likely the worker on h4")
    down = explained(held=held, now=look(down=("spine1", "leaf2")))
    assert down.culprit == "Most likely the path from spine1 to leaf2: the link spine1 → leaf2 is down."
    assert "same all-reduce" in explained(held=held).culprit


def test_a_job_that_goes_on_has_no_culprit() -> None:
    busy = [worker(host, 7, waiting(8, silent=0.1)) for host in ("h1", "h2", "h3", "h4")]
    assert explained(*busy).culprit.endswith("the job makes progress.")


def test_a_lease_that_goes_in_the_middle_leaves_chunks_unknown() -> None:
    found = explain(job(*ALL), {}, look(), look(NOW - 2), {})
    assert (found.missing, found.unknown) == ((), "the job has lost its lease since")


def test_of_several_workers_of_a_host_the_late_one_is_named_by_its_rank() -> None:
    found = two_on_each_host()
    held = {switch: cell for switch, cell in cells(leaf1=1).items() if switch != "leaf2"}
    told = explain(found, held, look(), look(NOW - 2), {1102: "sleeps"})
    assert told.culprit == (
        "Most likely rank 3 on h2, without which the others cannot continue (rank 3 on h2: process 1102 sleeps, had "
        "come to call 6, as far as it has reported)."
    )
