"""What is done for jobs when a switch has lost all that it held."""

import asyncio
from typing import Any

import pytest

from controller.controller import Findings, Loss
from experiments.live.watch import Watch


class Jobs:
    """In place of the job service's."""

    def __init__(self, switches: list[str]) -> None:
        self.revoked: list[tuple[str, str]] = []
        self._switches = switches

    def documents(self) -> list[dict[str, Any]]:
        job = {"name": "train", "state": "in network", "ring": True, "hosts": ["h1", "h2"]}
        return [{**job, "switches": self._switches}]

    async def revoke(self, name: str, why: str) -> None:
        self.revoked.append((name, why))


class Network:
    """All is up until the first look is over."""

    def start_again(self) -> list[str]:
        return []

    def links_down(self) -> tuple[Any, ...]:
        return ()


class Controller:
    """Finds that leaf1 has lost all."""

    async def tend(self, *, read_tables: bool) -> Findings:
        assert read_tables
        return Findings("", [Loss("leaf1", 10, 10, emptied=True)], {})


class LookedError(Exception):
    """Ends the watch."""


@pytest.mark.parametrize(
    ("switches", "handed_over"),
    [
        (["leaf1"], True),
        (["leaf1", "spine1"], False),
        ([], False),  # of one that is just ending, or between two leases
    ],
)
def test_a_job_goes_on_by_ring_if_its_root_has_forgotten(switches: list[str], handed_over: bool) -> None:
    jobs, said = Jobs(switches), []

    def end() -> None:
        raise LookedError

    parts: tuple[Any, ...] = (Network(), Controller(), None, jobs)
    with pytest.raises(LookedError):
        asyncio.run(Watch(*parts, said.append).run(end))
    assert said == [
        "leaf1 had lost 10 of 10 entries and groups, and what its registers held; all entries are installed again"
    ]
    assert jobs.revoked == ([("train", "leaf1, the root of its tree, has restarted")] if handed_over else [])
