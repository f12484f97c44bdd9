"""The program of p4src/, compiled once and run packet by packet in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from p4compiler import Compiled, compile_file
from p4switch.engine.engine import Engine
from tests.p4src.switch_under_test import SwitchUnderTest

PROGRAM = Path(__file__).parents[2] / "p4src" / "fanin.p4"


@pytest.fixture(scope="session")
def compiled() -> Compiled:
    return compile_file(PROGRAM)


@pytest.fixture(scope="session")
def engine(compiled: Compiled) -> Engine:
    return Engine.load(compiled.device_config())


@pytest.fixture
def switch(engine: Engine) -> SwitchUnderTest:
    """A switch with empty tables and fresh registers."""
    return SwitchUnderTest(engine.another())
