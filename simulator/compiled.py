"""Event loop in C, for networks whose switches run C programs: `loop/` implements network.py and links.py.

The history is the same, byte for byte. Without a C compiler, the Python modules do the work alone.
"""

from __future__ import annotations

import ctypes
import warnings
import weakref
from collections import Counter
from collections.abc import Mapping
from ctypes import c_bool, c_double, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fanin.native.shared import check_numbers, check_structs, enumerated
from fanin.native.toolchain import NoCompilerError, ToolchainError, compile_folder
from fanin.simulator.deadlock import Waiting
from fanin.simulator.links import LinkCounts, Transit
from fanin.simulator.network import (
    DEFAULT_HOST,
    LONGEST_FRAME,
    HostModel,
    Observer,
    Station,
    SwitchProgram,
    VirtualNetwork,
)
from fanin.simulator.packets import Snapshot
from fanin.simulator.queues import ACTIONS
from fanin.simulator.units import NEVER, SECOND, not_before
from fanin.topologies.model import Topology

HEADER_BYTES = 42  # Ethernet, IPv4, UDP
_TIMES = ("byte_time", "overhead", "delay", "room", "mark", "always_mark", "down_from", "down_until")
_PROBABILITIES = (
    "mark_probability",
    "loss",
    "corruption",
    "duplication",
    "reordering",
    "displacement",
    "jitter",
)
_PAUSES = ("xoff", "xon", "detection", "restoration", "action")
_COUNTS = (
    *("packets", "bytes", "arrived", "busy", "waited", "queue_area", "longest_queue", "queue_drops"),
    *("lost", "marks", "pauses", "paused", "storms", "watchdog_drops"),
)
_LINK = np.dtype(
    [
        *((name, np.int64) for name in (*_TIMES, *_PAUSES)),
        ("key", np.uint64),
        *((name, np.float64) for name in _PROBABILITIES),
        *((name, np.float64) for name in ("burst_begin", "burst_end", "burst_loss")),
        *((name, np.int64) for name in ("faulty", "bursts", "far_node", "far_port")),
        *(
            (name, np.int64)
            for name in (
                "free_at",
                "last_arrival",
                "numbered",
                "in_burst",
                "joined",
                "acts_at",
                "queued_bytes",
            )
        ),
        *((name, np.int64) for name in _COUNTS),
    ]
)


class _Station(ctypes.Structure):
    _fields_ = (
        ("turn", c_void_p),
        ("worker", c_void_p),
        ("give_up", c_double),
        ("sizes", c_int64 * 2),
        ("headers", c_uint8 * HEADER_BYTES * 2),
        ("type", c_uint8 * 2),
        ("protocol", c_uint8),
        ("ends", c_uint8 * 12),
    )


_PROGRAM_ROOM = 65600  # bytes of the longest packet that a program takes: native/program.h
_EVENT = np.dtype([("time", np.int64), ("link", np.uint32), ("row", np.uint32)])
_FAULTS = {
    "lost": "loss",
    "burst lost": "burst loss",
    "corrupted": "corruption",
    "duplicated": "duplication",
    "reordered": "reordering",
    "queue drop": "queue drop",
    "ECN mark": "ECN mark",
    "no link": "no link",
}
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "loop_open": (
        c_void_p,
        (*[c_uint32] * 3, c_void_p, c_uint32, c_void_p, *[c_uint32] * 2, *[c_void_p] * 2, *[c_int64] * 2),
    ),
    "loop_close": (None, (c_void_p,)),
    "loop_set_program": (None, (c_void_p, c_uint32, c_void_p, c_void_p)),
    "loop_failed": (c_bool, (c_void_p,)),
    "loop_too_long": (c_uint32, (c_void_p,)),
    "loop_in_use": (c_uint64, (c_void_p,)),
    "loop_collect": (c_uint64, (c_void_p, c_int64, ctypes.POINTER(c_void_p))),
    "loop_read": (None, (c_void_p, c_void_p, c_uint64, c_void_p, c_void_p, c_uint64)),
    "loop_deliver": (None, (c_void_p,)),
    "loop_set_timer": (None, (c_void_p, c_uint32, c_int64)),
    "loop_set_stalls": (None, (c_void_p, c_uint32, c_void_p, c_uint64)),
    "loop_set_station": (None, (c_void_p, c_uint32, c_void_p)),
    "loop_next_host": (c_int64, (c_void_p, c_int64, ctypes.POINTER(c_bool))),
    "loop_turns": (c_uint64, (c_void_p,)),
    "loop_waiting": (c_uint64, (c_void_p, c_uint32, c_int64)),
    "loop_take": (None, (c_void_p, c_uint32, c_uint64, c_void_p, c_void_p, c_uint64)),
    "loop_send": (None, (c_void_p, c_uint32, c_void_p, c_uint64, c_uint32, c_int64)),
    "loop_end": (None, (c_void_p, c_int64)),
    "loop_next_time": (c_int64, (c_void_p,)),
    "loop_stopped": (None, (c_void_p, c_void_p)),
    "loop_count_lanes": (None, (c_void_p, c_void_p, c_void_p)),
    "loop_waiting_areas": (None, (c_void_p, c_int64, c_void_p)),
    "loop_queued": (c_uint64, (c_void_p, c_void_p, c_uint64)),
}


@runtime_checkable
class CompiledProgram(Protocol):
    """A switch program compiled to C, such as an engine of p4switch; native/program.h describes its two addresses."""

    @property
    def run_function(self) -> int: ...  # noqa: D102
    @property
    def base(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class StationInC:
    """A station whose packets C handles (native/worker.h).

    Attributes:
        turn: Address of the function that takes the worker's turn.
        worker: Address of the worker.
        give_up: Seconds without an answer after which the worker gives up.
        headers: Headers of the frames that it sends, by the size of the datagram in bytes (two sizes).
        type: Ethernet type of the frames that it accepts.
        protocol: IPv4 protocol of the frames that it accepts.
        ends: Addresses (source, destination) and then ports of the frames that it accepts.
    """

    turn: int
    worker: int
    give_up: float
    headers: dict[int, NDArray[np.uint8]]
    type: bytes
    protocol: bytes
    ends: bytes

    def as_struct(self) -> ctypes.Structure:
        """Return the struct that C reads."""
        return _Station(
            self.turn,
            self.worker,
            self.give_up,
            tuple(self.headers),
            tuple(tuple(header.tolist()) for header in self.headers.values()),
            *(tuple(self.type), self.protocol[0], tuple(self.ends)),
        )


@runtime_checkable
class CompiledStation(Protocol):
    """A Station that may leave its packets to C."""

    @property
    def compiled(self) -> StationInC | None:
        """Return what C needs to know, or None if everything is done in Python."""

    def taken(self, now: float) -> None:
        """Continue after C has received everything that arrived by `now` (seconds).

        frames_to_send() and deadline() are called next.
        """


@cache
def library() -> ctypes.CDLL | None:
    """Return the loop, compiled by $CC or cc.

    Returns:
        The loaded library. None if there is no compiler, or, with a warning, if compiling fails.

    Raises:
        SharedError: C and Python disagree about a number or a struct.
    """
    try:
        loaded = ctypes.CDLL(str(compile_folder(Path(__file__).parent / "loop")))
    except NoCompilerError:
        return None
    except (OSError, ToolchainError) as error:
        warnings.warn(
            f"loop/*.c could not be compiled, so virtual time runs in Python, more slowly: {error}",
            stacklevel=2,
        )
        return None
    check_structs(loaded, {"link": _LINK, "event": _EVENT, "station": _Station})
    check_numbers(loaded, enumerated(*_FAULTS) | enumerated(*ACTIONS) | {"PROGRAM_ROOM": _PROGRAM_ROOM})
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def virtual_network(
    topology: Topology,
    switches: Mapping[str, SwitchProgram],
    stations: Mapping[str, Station],
    *,
    host: HostModel = DEFAULT_HOST,
    seed: int = 0,
    longest_frame: int = LONGEST_FRAME,
    observer: Observer | None = None,
    priorities: bool = False,
) -> VirtualNetwork:
    """Return the fastest VirtualNetwork available here for this topology and these programs."""
    compiled = all(isinstance(program, CompiledProgram) for program in switches.values())
    kind = CompiledNetwork if compiled and library() else VirtualNetwork
    return kind(
        topology,
        switches,
        stations,
        host=host,
        seed=seed,
        longest_frame=longest_frame,
        observer=observer,
        priorities=priorities,
    )


class CompiledNetwork(VirtualNetwork):
    """A VirtualNetwork in C. Its switches are CompiledPrograms.

    Raises:
        RuntimeError: The loop has not been compiled here.
        ValueError: longest_frame is more than a program accepts.
    """

    def _open(self) -> None:
        loaded = library()
        if loaded is None:
            raise RuntimeError("loop/*.c have not been compiled; install a C compiler, or use VirtualNetwork")
        self._width = self.store.rows.shape[1]
        if self._width > _PROGRAM_ROOM:
            raise ValueError(
                f"longest_frame: {self._width} bytes; a switch program accepts at most {_PROGRAM_ROOM}"
            )
        self._c = loaded
        self._links = links = np.zeros(len(self.link_ends), _LINK)
        for name, values in self.links.constants().items():
            links[name] = values
        self.links.down_from, self.links.down_until = links["down_from"], links["down_until"]
        self.links.free_at, self.links.queued_bytes = links["free_at"], links["queued_bytes"]
        links["far_node"], links["far_port"] = self._far_node, self._far_port
        self.links.counts = LinkCounts.of(len(links), **{name: links[name] for name in _COUNTS})
        self._link_faults = np.zeros(len(_FAULTS), np.int64)
        link_at = self._link_at.astype(np.int32)
        self._loop = loaded.loop_open(
            *(len(self._switches), len(self._stations), link_at.shape[1], link_at.ctypes.data),
            *(self._width, links.ctypes.data, len(links), self._priorities),
            *(self._wakes.ctypes.data, self._link_faults.ctypes.data, self._window, self._coalescing),
        )
        if not self._loop:
            raise MemoryError(f"no memory for the network {self.topology.name}")
        weakref.finalize(self, loaded.loop_close, self._loop)
        for node, program in enumerate(self._switches):
            self._set_program(node, program)
        self._in_c: list[ctypes.Structure | None] = [None] * len(self._stations)  # kept from being freed
        for index, station in enumerate(self._stations):
            if station is not None:
                self._set_station(index, station)

    # -- what callers do -------------------------------------------------------------------------------------

    def wake(self, host: str, at: float) -> None:
        """See VirtualNetwork."""
        self._c.loop_set_timer(self._loop, self._host_index[host], max(self.now, not_before(at)))

    def stall(self, host: str, begin: float, end: float) -> None:
        """See VirtualNetwork."""
        super().stall(host, begin, end)
        index = self._host_index[host]
        stalls = np.array(self._stalls[index], np.int64)
        self._c.loop_set_stalls(self._loop, index, stalls.ctypes.data, len(stalls))
        self._check()

    def replace_switch(self, name: str, program: SwitchProgram) -> None:
        """See VirtualNetwork."""
        self._set_program(self._switch_index[name], program)
        super().replace_switch(name, program)

    def replace_station(self, host: str, station: Station, at: float) -> None:
        """See VirtualNetwork."""
        self._set_station(self._host_index[host], station)
        super().replace_station(host, station, at)

    @property
    def in_flight(self) -> int:
        """See VirtualNetwork."""
        return int(self._c.loop_in_use(self._loop))

    @property
    def overtaken(self) -> NDArray[np.int64]:
        """See VirtualNetwork."""
        return self._counts_of_lanes()[0]

    @property
    def wire_bytes(self) -> NDArray[np.int64]:
        """See VirtualNetwork."""
        return self._counts_of_lanes()[1]

    @property
    def queue_areas(self) -> NDArray[np.int64]:
        """See VirtualNetwork."""
        waiting = np.zeros(len(self._links), np.int64)
        self._c.loop_waiting_areas(self._loop, self.now, waiting.ctypes.data)
        return self.links.queue_areas(self.now) + waiting

    def _counts_of_lanes(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        overtaken, sent = (np.zeros((len(self._links), self._priorities), np.int64) for _ in range(2))
        self._c.loop_count_lanes(self._loop, overtaken.ctypes.data, sent.ctypes.data)
        return overtaken, sent

    @property
    def faults(self) -> Counter[str]:
        """See VirtualNetwork."""
        faults = Counter(dict(zip(_FAULTS.values(), self._link_faults.tolist(), strict=True)))
        return faults + self._pause_faults

    def _waiting(self) -> Waiting:
        count, queued = self._c.loop_queued(self._loop, None, 0), np.zeros((0, 3), np.int64)
        if count:
            queued = np.empty((count, 3), np.int64)
            self._c.loop_queued(self._loop, queued.ctypes.data, count)
        stopped = np.zeros(len(self._links) * self._priorities, np.bool_)
        self._c.loop_stopped(self._loop, stopped.ctypes.data)
        return Waiting.of(stopped, np.repeat(self._links["xon"], self._priorities), queued)

    def _set_program(self, node: int, program: SwitchProgram) -> None:
        if not isinstance(program, CompiledProgram):
            raise TypeError(
                f"{type(program).__name__} is not a C program; all switches of this network must be"
            )
        self._c.loop_set_program(self._loop, node, program.run_function, program.base)

    def _set_station(self, index: int, station: Station) -> None:
        found = station.compiled if isinstance(station, CompiledStation) else None
        if found and HEADER_BYTES + max(found.headers) > self._width:
            raise ValueError(
                f"a datagram of {max(found.headers)} bytes does not fit the network's longest frame, {self._width}"
            )
        struct = found.as_struct() if found else None
        self._c.loop_set_station(self._loop, index, ctypes.addressof(struct) if struct else None)
        self._in_c[index] = struct

    def _check(self) -> None:
        if self._c.loop_failed(self._loop):
            raise MemoryError(f"no memory for the packets of {self.topology.name}")
        if longest := self._c.loop_too_long(self._loop):
            raise ValueError(
                f"a packet of {longest} bytes left a switch; this network carries at most {self._width}"
            )

    # -- a window --------------------------------------------------------------------------------------------

    def _next_window(self) -> int:
        return int(self._c.loop_next_time(self._loop))

    def _run_window(self, begin: int) -> None:
        end, events = begin + self._window, c_void_p()
        if count := self._c.loop_collect(self._loop, begin, ctypes.byref(events)):
            if self._observer:
                self._show(events, count, self._observer)
            self._c.loop_deliver(self._loop)
        taken, turns = c_bool(), self._c.loop_turns(self._loop)
        while (host := self._c.loop_next_host(self._loop, end, ctypes.byref(taken))) >= 0:
            self._run_station(host, taken=taken.value)
        self.wakes += self._c.loop_turns(self._loop) - turns
        self._c.loop_end(self._loop, end)
        self._check()
        self.now = end

    def _show(self, events: c_void_p, count: int, observer: Observer) -> None:
        assert events.value
        seen = np.frombuffer(ctypes.string_at(events.value, count * _EVENT.itemsize), _EVENT)
        packets = Snapshot(np.zeros((count, self._width), np.uint8), np.empty(count, np.int64))
        self._c.loop_read(self._loop, events, count, *packets.addresses(), self._width)
        links, times = seen["link"].astype(np.int64), seen["time"]
        observer(Transit(links, times, np.arange(count)), packets)

    def _run_station(self, host: int, *, taken: bool) -> None:
        """Run one wake-up of a host's station. If `taken`, C has already handled what arrived."""
        station = self._stations[host]
        assert station
        self.wakes += 1
        now = int(self._wakes[host])
        seconds = now / SECOND
        if taken:
            assert isinstance(station, CompiledStation)
            station.taken(seconds)
        elif count := self._c.loop_waiting(self._loop, host, now):
            packets = Snapshot(np.empty((count, self._width), np.uint8), np.empty(count, np.int64))
            self._c.loop_take(self._loop, host, count, *packets.addresses(), self._width)
            station.receive(packets.rows, packets.lengths, seconds)
        for frames in station.frames_to_send(seconds):
            if frames.shape[1] > self._width:
                raise ValueError(
                    f"a frame of {frames.shape[1]} bytes does not fit the network's longest, {self._width}"
                )
            sent = np.ascontiguousarray(frames)
            self._c.loop_send(self._loop, host, sent.ctypes.data, *sent.shape, now)
        deadline = station.deadline()
        timer = NEVER if deadline is None else max(now + 1, not_before(deadline))
        self._c.loop_set_timer(self._loop, host, timer)
