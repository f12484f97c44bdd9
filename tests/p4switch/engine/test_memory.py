"""The memory of a switch: packets leave none behind, and registers take it when their cells are first used."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.p4switch.engine.engine import Engine
from tests.p4switch.documents import document

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


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
def test_cells_of_a_register_take_memory_when_they_are_first_used() -> None:
    cells = 8_000_000
    config = document({}, [], register_arrays=[{"id": 0, "name": "r", "size": cells, "bitwidth": 64}])
    Engine.load(config)  # whatever else a first switch needs
    before = resident()
    engine = Engine.load(config)
    assert resident() - before < cells  # of eight times as many bytes
    assert engine.register("r").read(cells - 1) == [0]
