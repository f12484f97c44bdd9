"""The ranks that are waited for, by the reports of workers."""

from __future__ import annotations

import pytest

from fanin.controller.jobs.reports import WorkerState
from fanin.testbed.monitoring.waiting import waited_for, waiting_since
from tests.testbed.monitoring.snapshots import NOW, job, two_on_each_host, waiting, worker

H1 = worker("h1", 7, waiting(8))


@pytest.mark.parametrize(
    "other",
    [
        worker("h2", 7, heard=20),
        worker("h2", None),
        worker("h2", 6, waiting(7, 20), heard=20),
        worker("h2", 7, waiting(8, 20), heard=20),
        worker("h2", 7, waiting(8), left=True),
    ],
    ids=["computes", "has not begun", "is an all-reduce behind", "was stopped in it", "has ended"],
)
def test_a_worker_that_has_not_come_is_waited_for(other: WorkerState) -> None:
    found = job(H1, other)
    assert waited_for(found, NOW) == [other]
    assert waiting_since(found, NOW) == 5.5


def test_of_several_workers_of_a_host_the_one_that_has_not_come_is_waited_for() -> None:
    found = two_on_each_host()
    late = found.workers[3]
    assert waited_for(found, NOW) == [late]
    assert found.named(late) == "rank 3 on h2"
    here = found.workers[2].model_copy(update={"call": 8})  # the first worker of the host is late, too
    both = found.model_copy(update={"workers": (*found.workers[:2], here, late)})
    assert waited_for(both, NOW) == [here, late]


@pytest.mark.parametrize(
    "other", [worker("h2", 7, waiting(8)), worker("h2", 8)], ids=["waits, too", "has the result"]
)
def test_where_all_have_come_nobody_is(other: WorkerState) -> None:
    assert waited_for(job(H1, other), NOW) == []


@pytest.mark.parametrize(
    "first",
    [worker("h1", 7), worker("h1", 9, waiting(10, silent=0.2)), worker("h1", 7, waiting(8), left=True)],
    ids=["idle", "busy", "has ended"],
)
def test_where_nobody_waits_nobody_is_waited_for(first: WorkerState) -> None:
    found = job(first, worker("h2", 5, heard=20))
    assert waited_for(found, NOW) == []
    assert waiting_since(found, NOW) is None
