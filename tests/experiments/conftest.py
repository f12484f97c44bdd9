"""Switches of virtual time."""

from __future__ import annotations

import pytest

from p4compiler import Compiled
from p4switch.engine.engine import Engine


@pytest.fixture(scope="session")
def switch(fanin_p4: Compiled) -> Engine:
    """One that runs the program of p4src/, of which tests make others (`new_instance()`)."""
    return Engine.load(fanin_p4.device_config())
