"""The switch's ports as gNMI shows and changes them: the kernel's interfaces and the engine's counters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from fanin.p4switch.gnmi.schema import PortState
from fanin.p4switch.ports.counters import PortCounters
from fanin.p4switch.ports.interfaces import read_interface, set_interface_up
from fanin.p4switch.ports.status import PortMonitor


class SwitchPorts:
    """Ports by the names of their interfaces; `numbered` has the names by port number."""

    def __init__(
        self,
        numbered: Mapping[int, str],
        counters: Callable[[], Mapping[int, PortCounters]],
        monitor: PortMonitor,
    ) -> None:
        self._numbers = {name: number for number, name in sorted(numbered.items())}
        self._counters = counters
        self._monitor = monitor
        self._listening = threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Every port's, in the order of their numbers."""
        return tuple(self._numbers)

    def read(self, names: Iterable[str]) -> dict[str, PortState]:
        """These ports as they are now."""
        counters = self._counters()
        interfaces = {name: read_interface(name) for name in names}
        self._monitor.look()  # behind it: what an interface is said to be now has its time, too
        states = {}
        for name, interface in interfaces.items():
            number = self._numbers[name]
            states[name] = PortState(number, name, interface, counters[number], self._monitor.since[number])
        return states

    def set_up(self, name: str, up: bool) -> None:
        """Brings a port's interface up or down.

        Raises:
            OSError: see set_interface_up.
        """
        set_interface_up(name, up)

    @contextmanager
    def listening(self, tell: Callable[[], None]) -> Iterator[None]:
        """Calls `tell` at any news of interfaces, for the time of a `with` block."""
        with self._listening:
            self._monitor.listeners |= {tell}
        try:
            yield
        finally:
            with self._listening:
                self._monitor.listeners -= {tell}
