"""The switch's ports for gNMI, which combines the kernel's interfaces and the engine's counters."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from fanin.p4switch.gnmi.schema import PortState
from fanin.p4switch.ports.counters import PortCounters
from fanin.p4switch.ports.interfaces import read_interface, set_interface_up
from fanin.p4switch.ports.status import PortMonitor


class SwitchPorts:
    """Ports by the names of their interfaces; `numbered` maps port numbers to names."""

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
        """Return the names of all ports, ordered by port number."""
        return tuple(self._numbers)

    def read(self, names: Iterable[str]) -> dict[str, PortState]:
        """Return the current state of these ports."""
        counters = self._counters()
        interfaces = {name: read_interface(name) for name in names}
        self._monitor.look()  # after reading the interfaces, so that their current state has a time, too
        states = {}
        for name, interface in interfaces.items():
            number = self._numbers[name]
            states[name] = PortState(number, name, interface, counters[number], self._monitor.since[number])
        return states

    def set_up(self, name: str, up: bool) -> None:
        """Bring a port's interface up or down.

        Raises:
            OSError: As for `set_interface_up`.
        """
        set_interface_up(name, up)

    @contextmanager
    def listening(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` on every change of an interface, during a `with` block."""
        with self._listening:
            self._monitor.listeners |= {tell}
        try:
            yield
        finally:
            with self._listening:
                self._monitor.listeners -= {tell}
