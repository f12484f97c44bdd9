"""The repair of jobs when a switch has lost all that it held."""

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

import pytest

from fanin.controller.controller import Findings, Loss
from fanin.controller.errors import ControllerError
from fanin.controller.tree import Aggregator
from fanin.testbed.patience import setting
from fanin.testbed.supervisor import Watch
from fanin.topologies.model import Link, Topology
from fanin.topologies.shapes import leaf_spine

ROOT = Aggregator("leaf1", ("h1", "h2"), None)
SPINE = Aggregator("spine1", ("leaf1", "leaf2"), None)


class Jobs:
    """In place of the job service's."""

    def __init__(self, *tree: Aggregator) -> None:
        self.ended: list[tuple[int, str, bool]] = []
        self._tree = tree

    def documents(self) -> list[dict[str, Any]]:
        job = {"name": "train", "lease": 7, "state": "in network", "ring": True, "hosts": ["h1", "h2"]}
        switches = [part.switch for part in self._tree]
        return [{**job, "switches": switches, "tree": [asdict(part) for part in self._tree]}]

    async def end_lease(self, lease: int, why: str, *, for_good: bool) -> None:
        self.ended.append((lease, why, for_good))


class Network:
    """All is up until the first look is over, but for these links."""

    topology = leaf_spine(1, 1, 2)

    def __init__(self, down: Sequence[Link] = ()) -> None:
        self._down = tuple(down)
        self.blind = False

    def start_again(self) -> list[str]:
        return []

    def lost_hosts(self) -> dict[str, str]:
        return {}

    def links_down(self) -> tuple[Link, ...]:
        if self.blind:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._down


class Controller:
    """Finds that leaf1 has lost all, or says that there is `trouble`; the third look ends the watch."""

    def __init__(self, trouble: str = "") -> None:
        self._trouble = trouble
        self._looks = 0

    async def tend(self, *, read_tables: bool) -> Findings:
        self._looks += 1
        assert read_tables or self._looks > 1
        if self._looks == 3:
            raise LookedError
        if self._trouble:
            raise ControllerError(self._trouble)
        return Findings("", [Loss("leaf1", 10, 10, emptied=True)] if self._looks == 1 else [], {})

    async def reroute(self, usable: Topology) -> None:
        pass


class Networked:
    """Whose budget is told of the links that are left."""

    def reroute(self, usable: Topology) -> None:
        pass


def _parts(jobs: Jobs, down: Sequence[Link] = (), controller: Controller | None = None) -> tuple[Any, ...]:
    return Network(down), controller or Controller(), Networked(), jobs


def _link(*ends: str) -> Link:
    [found] = [link for link in Network.topology.links if {link.a.node, link.b.node} == set(ends)]
    return found


class LookedError(Exception):
    """Ends the watch."""


@pytest.mark.parametrize(
    ("tree", "handed_over"),
    [
        ([ROOT], True),
        ([Aggregator("leaf1", ("h1", "h2"), "spine1"), SPINE], True),
        ([Aggregator("leaf1", ("h1",), "spine1"), SPINE], False),
        ([], False),  # of one that is just ending, or between two leases
    ],
)
def test_a_job_goes_on_by_ring_if_a_switch_that_adds_up_has_forgotten(
    tree: list[Aggregator], handed_over: bool
) -> None:
    jobs, said = Jobs(*tree), []

    with pytest.raises(LookedError):
        asyncio.run(Watch(*_parts(jobs), said.append).run())
    assert said == [
        "leaf1 had lost 10 of 10 entries and groups, and what its registers held; all entries are installed again"
    ]
    assert jobs.ended == ([(7, "leaf1, which adds up for it, has restarted", False)] if handed_over else [])


def test_a_job_whose_new_tree_leads_over_a_link_known_to_be_down_gets_no_other_one() -> None:
    jobs, link = Jobs(ROOT, SPINE), _link("leaf1", "spine1")
    watch = Watch(*_parts(jobs, [link]), lambda _: None)

    async def look_twice() -> None:
        await watch._look_at_links()
        await watch._look_at_links()

    asyncio.run(look_twice())
    why = "the link between leaf1 and spine1 is down"
    assert jobs.ended == [(7, why, False), (7, why, True)]


def test_links_of_which_nothing_is_known_are_as_they_were() -> None:
    jobs, said, link = Jobs(ROOT, SPINE), list[str](), _link("leaf1", "spine1")
    parts = _parts(jobs, [link])
    watch = Watch(*parts, said.append)

    async def look() -> None:
        await watch._look_at_links()
        parts[0].blind = True
        await watch._look_at_links()
        await watch._look_at_links()

    asyncio.run(look())
    assert said == [
        "the link between leaf1 and spine1 is down",
        "cannot determine whether links are up: [Errno 24] Too many open files",
    ]
    assert [why for _, why, _ in jobs.ended] == ["the link between leaf1 and spine1 is down"] * 3


def test_a_host_s_link_is_in_every_tree() -> None:
    jobs, link = Jobs(ROOT), _link("h1", "leaf1")
    asyncio.run(Watch(*_parts(jobs, [link]), lambda _: None)._look_at_links())
    assert [for_good for *_, for_good in jobs.ended] == [True]


def test_trouble_is_said_once_and_what_logs_beside_ends_nothing() -> None:
    said: list[str] = []

    def fail() -> None:
        raise ValueError("no report")

    with pytest.raises(LookedError):
        asyncio.run(
            Watch(*_parts(Jobs(), [], Controller("the controller cannot be started")), said.append).run(fail)
        )
    assert said == [
        "the controller cannot be started",
        "waiting workers are no longer logged: ValueError('no report')",
    ]


def test_a_host_that_is_lost_is_reported_once() -> None:
    said: list[str] = []

    class Losing(Network):
        def lost_hosts(self) -> dict[str, str]:
            return {"h1": "h1: its shell has ended"}

    _, *parts = _parts(Jobs(), [], Controller("the controller cannot be started"))
    with pytest.raises(LookedError):
        asyncio.run(Watch(cast(Any, Losing()), *parts, said.append).run())
    assert said == ["h1: its shell has ended", "the controller cannot be started"]


def test_a_switch_that_ends_while_it_is_asked_for_its_tables_is_started_again_meanwhile() -> None:
    asked, started, said = asyncio.Event(), asyncio.Event(), []

    class Asked(Controller):
        async def tend(self, *, read_tables: bool) -> Findings:
            asked.set()
            await started.wait()
            return await super().tend(read_tables=read_tables)

    class Ending(Network):
        def start_again(self) -> list[str]:
            if not asked.is_set() or started.is_set():
                return []
            started.set()
            return ["leaf1 has ended"]

    parts: tuple[Any, ...] = (Ending(), Asked(), Networked(), Jobs())
    with pytest.raises(LookedError):
        asyncio.run(asyncio.wait_for(Watch(*parts, said.append).run(), 60 * setting()))
    assert said[0] == "leaf1 has ended\nit is started again"
