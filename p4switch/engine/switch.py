"""A running switch: its state in memory, its lock, and its open ports, which all its parts share."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from fanin.p4switch.bmv2json.program import Program
from fanin.p4switch.engine.library import runtime
from fanin.p4switch.engine.live_ports import LivePorts


class SwitchLock:
    """Lock of a switch. While it is held, no packet is processed and no other thread writes. It is reentrant."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._holder: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if self._holder != thread:
            runtime().switch_lock(self._base)
            self._holder = thread
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            runtime().switch_unlock(self._base)


class RunningSwitch:
    """State of a program, which begins at `base`. It is freed with the last part of the switch that refers to it.

    `live` holds one item while the ports are open.

    Raises:
        MemoryError: If there is no memory for its state.
    """

    def __init__(self, program: Program, library: ctypes.CDLL, drop_port: int, seed: int) -> None:
        self.base: int = library.program_open(drop_port, seed)
        if not self.base:
            raise MemoryError(f"no memory for the state of {program.name}")
        runtime().switch_open(self.base)
        self.lock = SwitchLock(self.base)
        self.live: list[LivePorts] = []
        weakref.finalize(self, _close, self.base, len(program.tables), len(program.value_sets), self.live)

    def now(self) -> int:
        """Return the time of the live ports' clock in microseconds; 0 while they are closed."""
        return self.live[0].now() if self.live else 0


class _SwitchPart(Protocol):
    _switch: RunningSwitch


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Owner = TypeVar("_Owner", bound=_SwitchPart)


def locked(
    method: Callable[Concatenate[_Owner, _Arguments], _Result],
) -> Callable[Concatenate[_Owner, _Arguments], _Result]:
    """Make a method of a part of the switch hold the switch's lock."""

    @wraps(method)
    def holding(part: _Owner, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with part._switch.lock:
            return method(part, *args, **kwargs)

    return holding


def _close(base: int, tables: int, value_sets: int, live: list[LivePorts]) -> None:
    while live:
        live.pop().close()
    runtime().switch_close(base, tables, value_sets)
