"""Switches without ports, and a job service without a controller."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.membership import JobService
from tests.controller.job_service import Check, FakeGrants, With, Worker
from tests.controller.switches import running
from topologies.model import Topology, leaf_spine


@pytest.fixture(scope="session")
def network() -> Iterator[Topology]:
    """A leaf-spine network whose switches are p4switch processes on this machine's loopback, without ports."""
    with running(leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)) as (topology, _):
        yield topology


@pytest.fixture
def service(tmp_path: Path) -> With:
    """Calls a coroutine function with the path of a service for h1, h2 and h3, and the grants behind it."""
    path = tmp_path / "jobs.sock"

    async def run(check: Check) -> None:
        grants = FakeGrants()
        service = JobService(["h1", "h2", "h3"], grants.open, grants.reports.append)
        async with service.serve(path):
            try:
                await check(path, grants)
            finally:
                await Worker.end_all()
        assert not path.exists()

    return lambda check: asyncio.run(run(check))
