"""The program of p4src/, compiled once and run packet by packet in this process."""

from __future__ import annotations

import pytest

from fanin.p4compiler import Compiled
from fanin.p4switch.engine.engine import Engine
from tests.p4src.switch_under_test import SwitchUnderTest


@pytest.fixture(scope="session")
def engine(fanin_p4: Compiled) -> Engine:
    return Engine.load(fanin_p4.device_config())


@pytest.fixture
def switch(engine: Engine) -> SwitchUnderTest:
    """A switch with empty tables and fresh registers."""
    return SwitchUnderTest(engine.new_instance())
