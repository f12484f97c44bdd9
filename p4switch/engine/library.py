"""The compiled runtime and programs, loaded with ctypes; see runtime/switch.h and runtime/table.h.

Structs have the same names as in C, and are compared with C's when the runtime is loaded.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from fanin.native.shared import check_numbers, check_structs
from fanin.native.toolchain import compile_folder, compile_text
from fanin.p4switch.bmv2json.program import LONGEST_PACKET
from fanin.p4switch.codegen.analysis.limits import COUNTER_BYTES
from fanin.p4switch.codegen.keys import METER_WORDS
from fanin.p4switch.codegen.names import RUNTIME
from fanin.p4switch.engine.hash_state import MAX_KEY_WORDS, HashState
from fanin.p4switch.engine.meters import Counter, Meter, MeterRate
from fanin.p4switch.primitives import OUTSIDE

PACKAGE = Path(__file__).parents[1]
TRANSLATION = (
    "codegen/**/*.py",
    "bmv2json/**/*.py",
    "primitives/**/*.py",
    "reader/**/*.py",
    "entries.py",
    "word_packing.py",
)  # files that determine how a program is translated
MULTICAST_GROUPS = 65536
SESSIONS = 32768  # mirroring sessions
MESSAGE_OF_DROP = (
    0xFFFFFFFF  # number of a message that has the reason as text, instead of a statement's number
)

Words = POINTER(c_uint64)


class Collected(ctypes.Structure):
    """Packets that a program sent, as `switch_process` collects them."""

    _fields_ = (("bytes", c_void_p), ("used", c_uint64), ("capacity", c_uint64))


class Drops(ctypes.Structure):
    """Numbers of packets dropped because of limits.

    There is a limit for each of these:

    - the length of a packet that leaves
    - the number of passes of a packet and its copies
    - the memory for packets that wait for their next pass
    - the number of jumps in an action
    """

    _fields_ = tuple((name, c_uint64) for name in ("too_long", "too_often", "no_room", "too_many_jumps"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drops) and bytes(self) == bytes(other)

    def __repr__(self) -> str:
        return f"Drops({', '.join(f'{name}={getattr(self, name)}' for name, *_ in self._fields_)})"


class Replica(ctypes.Structure):
    """Replica of a multicast group or a mirroring session."""

    _fields_ = (("port", c_uint32), ("instance", c_uint32))


class PortStatistics(ctypes.Structure):
    """Statistics of one port since it was opened.

    They count packets, frames (fewer because of offload) and bytes, and packets with a multicast or broadcast address.
    `dropped` counts packets that were not sent, and `missed` frames that arrived faster than they were read. The errors
    count frames that the socket lost.
    """

    _fields_ = (
        *((name, c_uint64) for name in ("received", "received_frames", "sent", "sent_frames")),
        *((name, c_uint64) for name in ("dropped", "missed", "receive_errors", "send_errors")),
        *((name, c_uint64) for name in ("received_bytes", "received_multicast", "received_broadcast")),
        *((name, c_uint64) for name in ("sent_bytes", "sent_multicast", "sent_broadcast")),
    )


class LinkSettings(ctypes.Structure):
    """Properties of an emulated link: seconds, bytes, bits/s, probabilities."""

    _fields_ = (
        *((name, c_double) for name in ("rate", "delay", "jitter", "queue_bytes", "ecn_bytes")),
        *((name, c_double) for name in ("packet_rate", "queue_packets")),
        *((name, c_double) for name in ("loss", "corruption", "duplication", "reordering", "displacement")),
        *((name, c_double) for name in ("burst_begin", "burst_end", "burst_loss", "overhead")),
        ("seed", c_uint64),
    )


class LinkStatistics(ctypes.Structure):
    """Statistics of an emulated link: packets, except for *bytes and for lateness (picoseconds)."""

    _fields_ = (
        *((name, c_uint64) for name in ("offered", "sent", "sent_bytes")),
        *((name, c_uint64) for name in ("lost", "burst_lost", "queue_dropped", "memory_dropped")),
        *((name, c_uint64) for name in ("marked", "corrupted", "duplicated", "reordered", "highest_bytes")),
        *((name, c_uint64) for name in ("lateness_sum", "lateness_most", "late", "queue_bytes", "held")),
    )


SIGNATURES = {
    "switch_open": (None, [c_void_p]),
    "switch_close": (None, [c_void_p, c_uint32, c_uint32]),
    "switch_lock": (None, [c_void_p]),
    "switch_unlock": (None, [c_void_p]),
    "switch_table": (c_void_p, [c_void_p, c_uint32]),
    "switch_value_set": (c_void_p, [c_void_p, c_uint32]),
    "switch_hash_state": (c_void_p, [c_void_p, c_uint32]),
    "switch_failures": (c_uint64, [c_void_p]),
    "switch_drops": (None, [c_void_p, POINTER(Drops)]),
    "switch_keep_digests": (None, [c_void_p, c_int32]),
    "switch_digests": (c_uint64, [c_void_p, POINTER(c_void_p)]),
    "switch_wake_for_messages": (None, [c_void_p, c_int32]),
    "switch_messages": (c_uint64, [c_void_p, POINTER(c_void_p), POINTER(c_uint64)]),
    "switch_set_replicas": (
        c_bool,
        [c_void_p, c_bool, *(c_uint32, c_int32), c_void_p, *(c_uint32, c_uint32)],
    ),
    "switch_set_priority_queues": (None, [c_void_p, c_uint32]),
    "switch_process": (None, [c_void_p, c_uint32, ctypes.c_char_p, c_uint32, c_uint64, POINTER(Collected)]),
    "switch_collected_free": (None, [POINTER(Collected)]),
    "port_open": (c_int32, [ctypes.c_char_p]),
    "forwarder_open": (
        c_void_p,
        [c_void_p, c_uint32, POINTER(c_uint32), POINTER(c_int32), c_int64, c_bool],
    ),
    "forwarder_run": (None, [c_void_p]),
    "forwarder_now": (c_uint64, [c_void_p]),
    "forwarder_stop": (None, [c_void_p]),
    "forwarder_statistics": (None, [c_void_p, c_uint32, POINTER(PortStatistics)]),
    "forwarder_set_link": (c_bool, [c_void_p, c_uint32, c_bool, POINTER(LinkSettings)]),
    "forwarder_read_link": (c_bool, [c_void_p, c_uint32, c_bool, POINTER(LinkStatistics)]),
    "forwarder_capture": (None, [c_void_p, c_uint32, c_int32, c_int32]),
    "forwarder_close": (None, [c_void_p]),
    "table_open": (None, [c_void_p, c_uint32, c_uint32, c_uint64, c_uint32, c_uint32]),
    "table_extra": (c_void_p, [c_void_p, c_int64]),
    "table_add": (c_int64, [c_void_p, ctypes.c_char_p, c_uint32, c_uint32]),
    "table_remove": (None, [c_void_p, c_int64, Words]),
    "table_set": (None, [c_void_p, c_int64, c_uint32, Words]),
    "table_counter": (None, [c_void_p, c_int64, Words, Words]),
    "table_counter_set": (None, [c_void_p, c_int64, c_uint64, c_uint64]),
}


@cache
def runtime() -> ctypes.CDLL:
    """Return the runtime library, compiled on first use."""
    library = ctypes.CDLL(str(compile_folder(RUNTIME)))
    check_structs(
        library,
        {
            "collected": Collected,
            "counter": Counter,
            "drops": Drops,
            "hash_state": HashState,
            "link_settings": LinkSettings,
            "link_statistics": LinkStatistics,
            "meter": Meter,
            "meter_rate": MeterRate,
            "port_statistics": PortStatistics,
            "replica": Replica,
        },
    )
    check_numbers(
        library,
        {
            "COUNTER_BYTES": COUNTER_BYTES,
            "LONGEST_PACKET": LONGEST_PACKET,
            "MAX_KEY_WORDS": MAX_KEY_WORDS,
            "MESSAGE_OF_DROP": MESSAGE_OF_DROP,
            "METER_WORDS": METER_WORDS,
            "MULTICAST_GROUPS": MULTICAST_GROUPS,
            "SESSIONS": SESSIONS,
        },
    )
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def compile_program(config: bytes, translate: Callable[[], str], *, traced: bool = False) -> Path:
    """Return the library of a program, compiled if it is not in the cache.

    Args:
        config: The part of BMv2 JSON that determines the program's C.
        translate: Returns the C.
        traced: Whether the C records what it does.
    """
    key = hashlib.sha256(config)
    for path in sorted(path for pattern in TRANSLATION for path in PACKAGE.glob(pattern)):
        key.update(path.read_bytes())
    for path in sorted(OUTSIDE):
        key.update(path.read_bytes())
    if (
        traced
    ):  # a person reads what it says of a few packets, and waits for the compiler: -Og takes half as long
        return compile_text("traced", key.digest(), translate, RUNTIME, "-Og")
    return compile_text("program", key.digest(), translate, RUNTIME)


def load_program(path: Path) -> ctypes.CDLL:
    """Load a compiled program."""
    library = ctypes.CDLL(str(path))
    library.program_open.restype = c_void_p
    library.program_open.argtypes = [c_uint32, c_uint64]
    return library


def words(values: tuple[int, ...]) -> ctypes.Array[c_uint64]:
    """Return an array of 64-bit words."""
    return (c_uint64 * max(1, len(values)))(*values)
