"""The compiled runtime and programs as ctypes sees them; see runtime/switch.h and runtime/table.h."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_bool, c_double, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from p4switch.toolchain import compile_folder

Words = POINTER(c_uint64)


class Collected(ctypes.Structure):
    """Packets that a program sent, as `switch_process` collects them."""

    _fields_ = (("bytes", c_void_p), ("used", c_uint64), ("capacity", c_uint64))


class Drops(ctypes.Structure):
    """`struct drops`: packets dropped because something has a bound.

    Longer than a packet can be when they left; after too many passes of them and their copies; because too much waited
    for its next pass; in an action that went round and round.
    """

    _fields_ = tuple((name, c_uint64) for name in ("too_long", "too_often", "no_room", "too_many_jumps"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Drops) and bytes(self) == bytes(other)

    def __repr__(self) -> str:
        return f"Drops({', '.join(f'{name}={getattr(self, name)}' for name, *_ in self._fields_)})"


class PortStatistics(ctypes.Structure):
    """Of one port, since it was opened: packets (and frames, which offload makes fewer), packets not sent, frames
    that came faster than they were taken, frames that the socket lost with an error, bytes, and how many of the
    packets had a group's address.
    """

    _fields_ = (
        *((name, c_uint64) for name in ("received", "received_frames", "sent", "sent_frames")),
        *((name, c_uint64) for name in ("dropped", "missed", "receive_errors", "send_errors")),
        *((name, c_uint64) for name in ("received_bytes", "received_multicast", "received_broadcast")),
        *((name, c_uint64) for name in ("sent_bytes", "sent_multicast", "sent_broadcast")),
    )


class LinkSettings(ctypes.Structure):
    """`struct link_properties`: seconds, bytes, bits/s, probabilities."""

    _fields_ = (
        *((name, c_double) for name in ("rate", "delay", "jitter", "queue_bytes", "ecn_bytes")),
        *((name, c_double) for name in ("loss", "corruption", "duplication", "reordering", "displacement")),
        *((name, c_double) for name in ("burst_begin", "burst_end", "burst_loss", "overhead")),
        ("seed", c_uint64),
    )


class LinkStatistics(ctypes.Structure):
    """`struct link_statistics`: packets, but for *bytes and lateness (picoseconds)."""

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
    "switch_log": (None, [c_void_p, c_bool]),
    "switch_failures": (c_uint64, [c_void_p]),
    "switch_drops": (None, [c_void_p, POINTER(Drops)]),
    "switch_keep_digests": (None, [c_void_p, c_int32]),
    "switch_digests": (c_uint64, [c_void_p, POINTER(c_void_p)]),
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
    "forwarder_close": (None, [c_void_p]),
    "table_open": (None, [c_void_p, c_uint32, c_uint32, c_uint64, c_uint32, c_uint32]),
    "table_extra": (c_void_p, [c_void_p, c_int64]),
    "table_add": (c_int64, [c_void_p, Words, c_uint32, c_uint32]),
    "table_remove": (None, [c_void_p, c_int64, Words]),
    "table_set": (None, [c_void_p, c_int64, c_uint32, Words]),
    "table_counter": (None, [c_void_p, c_int64, Words, Words]),
    "table_counter_set": (None, [c_void_p, c_int64, c_uint64, c_uint64]),
}


@cache
def runtime() -> ctypes.CDLL:
    """The runtime library, compiled on first use."""
    library = ctypes.CDLL(str(compile_folder()))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def load_program(path: Path) -> ctypes.CDLL:
    """A compiled program."""
    library = ctypes.CDLL(str(path))
    library.program_open.restype = c_void_p
    library.program_open.argtypes = [c_uint32, c_uint64]
    return library


def words(values: tuple[int, ...]) -> ctypes.Array[c_uint64]:
    """An array of 64-bit words."""
    return (c_uint64 * max(1, len(values)))(*values)
