"""Tests that need a program of others run where it is installed and are skipped, with the reason, elsewhere."""

from __future__ import annotations

import shutil
import signal

import pytest

from experiments.tools import BMV2, P4C, ToolError


def pytest_configure() -> None:
    # In the background of a shell it is ignored, and would be by all that tests start and then interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, tool in (("bmv2", BMV2), ("p4c", P4C)):
        if item.get_closest_marker(marker):
            try:
                tool.find()
            except ToolError as error:
                pytest.skip(str(error))
    if item.get_closest_marker("tshark") and shutil.which("tshark") is None:
        pytest.skip("tshark is not here: apt-get install tshark")
