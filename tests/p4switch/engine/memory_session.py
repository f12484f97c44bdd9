"""Run by test_memory.py in a process of its own, since malloc counts what all threads of a process hold.

It prints by how many bytes that grows while the packets of a program pass.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica

BATCHES, COUNT = 20, 5000
PACKETS = {
    "passes": [bytes([what, 0, 0, 0xAA, 0xBB]) for what in range(9)],
    "entities": [bytes([8, 0, source, 1, 0, 0]) for source in range(16)],
}


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
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = MallocInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def main(program: str) -> None:
    engine = Engine.load(compile_once(program).device_config())
    packets = PACKETS[Path(program).stem]
    engine.keep_digests(os.eventfd(0, os.EFD_NONBLOCK))
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
    print(allocated() - before)


if __name__ == "__main__":
    main(sys.argv[1])
