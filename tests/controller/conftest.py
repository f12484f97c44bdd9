"""Switches without ports."""

from collections.abc import Iterator

import pytest

from tests.controller.switches import running
from topologies.model import Topology, leaf_spine


@pytest.fixture(scope="session")
def network() -> Iterator[Topology]:
    """A leaf-spine network whose switches are p4switch processes on this machine's loopback, without ports."""
    with running(leaf_spine(spines=2, leaves=2, hosts_per_leaf=2)) as (topology, _):
        yield topology
