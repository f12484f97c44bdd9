"""Packets leave no memory behind: not those that are cloned, resubmitted or recirculated, nor their digests."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica

TESTS = Path(__file__).parents[1]
BATCHES, COUNT = 20, 5000


class MallocInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated() -> int:
    """Bytes that malloc has given out."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        pytest.skip("this C library has no mallinfo2")
    mallinfo.restype = MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "packets"),
    [
        ("stf/passes", [bytes([what, 0, 0, 0xAA, 0xBB]) for what in range(9)]),
        ("programs/entities", [bytes([8, 0, source, 1, 0, 0]) for source in range(16)]),
    ],
)
def test_a_hundred_thousand_packets_leave_nothing_allocated(
    program: str, packets: list[bytes], request: pytest.FixtureRequest
) -> None:
    engine = Engine.load(compile_once(TESTS / f"{program}.p4").device_config())
    event = os.eventfd(0, os.EFD_NONBLOCK)
    request.addfinalizer(lambda: os.close(event))
    engine.keep_digests(event)
    for number in range(1, 8):
        engine.sessions.insert(number, (Replica(number, number),))
        engine.multicast.insert(number, (Replica(number, 1), Replica(number + 1, 2)))

    def run(batches: int) -> int:
        left = 0
        for _ in range(batches):
            for now in range(COUNT):
                left += len(engine.process(1, packets[now % len(packets)], now))
            assert len(engine.digests()) in (0, COUNT)
        return left

    assert run(3) > 0
    before = allocated()
    run(BATCHES)
    assert abs(allocated() - before) < COUNT  # 16 bytes for each three hundred packets would be more
