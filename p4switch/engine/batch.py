"""Processing of many packets in one call; see runtime/batch.c."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import POINTER, c_bool, c_uint8, c_uint32, c_uint64, c_void_p, cast
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fanin.native.shared import check_structs
from fanin.p4switch.bmv2json.program import LONGEST_PACKET
from fanin.p4switch.engine.library import runtime

_DEPARTURE = np.dtype([("source", np.uint32), ("port", np.uint32), ("length", np.uint32)])


@dataclass(frozen=True, slots=True)
class Departures:
    """Packets that left a program, in their order. All arrays are views, valid until the next batch.

    Attributes:
        sources: The number in the batch of the packet that each one came from.
        ports: The port of each packet.
        lengths: The length in bytes of each packet.
        packets: uint8 [count, room]; the first `length` bytes of a row are the packet.
    """

    sources: NDArray[np.uint32]
    ports: NDArray[np.uint32]
    lengths: NDArray[np.uint32]
    packets: NDArray[np.uint8]


class _Departures(ctypes.Structure):
    _fields_ = (
        ("heads", c_void_p),
        ("rows", c_void_p),
        ("count", c_uint64),
        ("capacity", c_uint64),
        ("room", c_uint32),
        ("source", c_uint32),
        ("longest", c_uint32),
        ("failed", c_bool),
    )


class BatchProcessor:
    """Batch processing for one switch, whose state begins at `base`."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._out = _Departures()
        self._close = weakref.finalize(self, _free, self._out)

    def process(
        self,
        ports: NDArray[np.uint32],
        packets: NDArray[np.uint8],
        lengths: NDArray[np.uint32],
        times: NDArray[np.uint64],
    ) -> Departures:
        """Process a batch; see Engine.process_batch."""
        count, room = packets.shape
        if not ports.shape == lengths.shape == times.shape == (count,):
            raise ValueError(f"{count} packets need as many ports, lengths and times")
        if count and int(lengths.max()) > min(room, LONGEST_PACKET):
            raise ValueError(
                f"a packet of {lengths.max()} bytes: the row has {room}, a packet at most {LONGEST_PACKET}"
            )
        out = self._out
        ports = np.ascontiguousarray(ports, np.uint32)
        packets = np.ascontiguousarray(packets, np.uint8)
        lengths = np.ascontiguousarray(lengths, np.uint32)
        times = np.ascontiguousarray(times, np.uint64)
        _library().switch_process_batch(
            *(
                self._base,
                count,
                ports.ctypes.data,
                packets.ctypes.data,
                lengths.ctypes.data,
                times.ctypes.data,
            ),
            *(room, ctypes.byref(out)),
        )
        if out.failed:
            raise MemoryError(f"no memory for what {count} packets that leave")
        if out.longest > room:
            raise ValueError(f"a packet of {out.longest} bytes left the program: the rows have {room}")
        if not out.count:
            nothing = np.zeros(0, _DEPARTURE)
            return Departures(
                nothing["source"], nothing["port"], nothing["length"], np.zeros((0, room), np.uint8)
            )
        heads = np.frombuffer(
            (c_uint8 * (out.count * _DEPARTURE.itemsize)).from_address(out.heads), _DEPARTURE
        )
        rows = np.frombuffer((c_uint8 * (out.count * room)).from_address(out.rows), np.uint8)
        return Departures(heads["source"], heads["port"], heads["length"], rows.reshape(out.count, room))


def run_function() -> int:
    """Return the address of switch_run(): a run_function of native/program.h for a switch, given its state."""
    return cast(_library().switch_run, c_void_p).value or 0


@cache
def _library() -> ctypes.CDLL:
    library = runtime()
    check_structs(library, {"departure": _DEPARTURE, "departures": _Departures})
    library.switch_process_batch.restype = None
    library.switch_process_batch.argtypes = [
        *(c_void_p, c_uint32, c_void_p, c_void_p, c_void_p, c_void_p, c_uint32, POINTER(_Departures))
    ]
    library.switch_departures_free.restype = None
    library.switch_departures_free.argtypes = [POINTER(_Departures)]
    return library


def _free(out: _Departures) -> None:
    _library().switch_departures_free(ctypes.byref(out))
