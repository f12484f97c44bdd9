"""Packets leave no memory behind: not those that are cloned, resubmitted or recirculated, nor their digests."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="this C library has no mallinfo2")
@pytest.mark.parametrize("program", ["stf/passes", "programs/entities"])
def test_a_hundred_thousand_packets_leave_nothing_allocated(program: str) -> None:
    session = Path(__file__).with_name("memory_session.py")
    grown = subprocess.run(
        [sys.executable, session, TESTS / f"{program}.p4"],
        env=os.environ | {"PYTHONPATH": os.fspath(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert abs(int(grown.stdout)) < 5000  # 16 bytes for each three hundred packets would be more
