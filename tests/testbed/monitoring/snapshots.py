"""Jobs as a look finds them, of workers in any state."""

from __future__ import annotations

from typing import Any

from fanin.controller.jobs.reports import Report, Waiting, WorkerState
from fanin.testbed.monitoring.snapshot import JobView, Part

NOW = 1000.0


def waiting(call: int, silent: float = 5.0, chunks: tuple[tuple[int, int], ...] = ((0, 3),)) -> Waiting:
    count = sum(last + 1 - first for first, last in chunks)
    return Waiting(
        all_reduce=call,
        elements=1000,
        announcing=False,
        accepted=0,
        total=count,
        chunks=chunks,
        sent=(2, 5),
        waiting=silent,
        silent=silent,
    )


def worker(
    host: str,
    done: int | None,
    waits: Waiting | None = None,
    heard: float = 0.5,
    left: bool = False,
    local: int = 0,
    call: int = 0,
) -> WorkerState:
    """It has finished `done` all-reduces (None: it has not reported), and was heard so many seconds ago."""
    report = None
    if done is not None:
        names = (
            "bytes_sent bytes_received retransmissions datagrams_sent datagrams_received accepted timeouts"
        )
        counts: dict[str, Any] = dict.fromkeys([*names.split(), "saturated"], 0)
        report = Report(
            all_reduces=done,
            ignored={"duplicate": 0},
            smoothed_rtt=0.001,
            rto=0.02,
            congestion_window=16.0,
            waiting=waits,
            **counts,
        )
    return WorkerState(
        host=host,
        process=int(host[1:]) + 100 + 1000 * local,
        joined=NOW - 100,
        left=left,
        heard=None if done is None else NOW - heard,
        report=report,
        local=local,
        call=call,
    )


def two_on_each_host() -> JobView:
    """The second worker of h2 has not come to call 9, in which all others wait."""
    return job(
        *(worker("h1", 7, waiting(8), call=9), worker("h1", None, local=1, call=9)),
        *(worker("h2", 7, heard=20, call=9), worker("h2", None, local=1, call=6)),
        per_host=2,
    )


def job(*workers: WorkerState, **changes: Any) -> JobView:
    """On two leaves with two hosts each, below one spine, or as many of them as there are workers."""
    hosts = tuple(dict.fromkeys(each.host for each in workers))
    racks = {"leaf1": hosts[:2], "leaf2": hosts[2:]}
    leaves = [Part(switch=leaf, children=below, parent="spine1") for leaf, below in racks.items() if below]
    root = Part(switch="spine1", children=tuple(leaf.switch for leaf in leaves), parent=None)
    found = JobView(
        name="train",
        state="in network",
        place=0,
        why="",
        aborted="",
        since=NOW - 100,
        hosts=hosts,
        workers=workers,
        lease=7,
        slots=(0, 3),
        tree=(*leaves, root),
    )
    return found.model_copy(update=changes)
