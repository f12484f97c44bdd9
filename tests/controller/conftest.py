"""Switches without ports, and a job service without a controller."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.job_service import GRPC, With, served
from tests.controller.switches import running


@pytest.fixture(scope="session")
def network() -> Iterator[Topology]:
    """A leaf-spine network whose switches are p4switch processes on this machine's loopback, without ports."""
    with running(leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)) as (topology, _):
        yield topology


@pytest.fixture
def service(tmp_path: Path) -> With:
    """Calls a coroutine function with the path of a service for h1, h2 and h3, and the grants behind it."""
    return served(tmp_path / "workers.sock")


@pytest.fixture(params=["lines", "gRPC"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> With:
    """As `service`, with each way to speak to it."""
    return served(tmp_path / (GRPC if request.param == "gRPC" else "workers.sock"))
