"""Live networks as the place where the tests of a lab run: one at a time, until a test needs another one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fanin.classroom.live_network import RUN_SECONDS, TIMING, LiveNetwork
from fanin.classroom.network_under_test import Run
from fanin.classroom.story import NotPossibleError, Story
from fanin.classroom.switch_under_test import LoadedProgram, Sent, SwitchUnderTest
from fanin.controller.entry_files import Entries
from fanin.controller.errors import ControllerError
from fanin.experiments.scenario.targets import target
from fanin.experiments.scenario.tools import SwitchKind
from fanin.p4compiler import Compiled
from fanin.simulator.network import Station
from fanin.testbed.mininet_net import MininetNetwork
from fanin.topologies.emulation import for_switch
from fanin.topologies.errors import NetworkError
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine

PORTS = 8  # of the switch in tests of one switch, each with a host


class LiveSwitch(SwitchUnderTest):
    """A switch with the student's program, in the live network of one switch, or in one that a test makes.

    The same things also happen to a switch without a network. It finds mistakes in what is installed, tells how many
    frames to wait for, and traces a packet that went wrong.
    """

    def __init__(self, loaded: LoadedProgram, story: Story, networks: LiveNetworks) -> None:
        super().__init__(loaded.engine.new_instance(), story)
        self._compiled = loaded.compiled
        self._networks = networks
        self._place: tuple[LiveNetwork, str] | None = None

    @property
    def compiled(self) -> Compiled:
        """Return the program."""
        return self._compiled

    @property
    def installed(self) -> list[Entries]:
        """Return what was installed, in order."""
        return [each for each in self._history if isinstance(each, Entries)]

    def attach(self, network: LiveNetwork, name: str) -> None:
        """Let a switch of a live network begin with this program and what was installed.

        Raises:
            ExpectationError: The switch refuses it.
        """
        try:
            network.load(name, self)
        except (ControllerError, ValueError) as error:
            raise self._failed(f"a live switch refuses it: {error}") from None
        self._place = network, name

    def install(self, entries: Any, where: str = "") -> None:
        """Write what a controller returned; see SwitchUnderTest."""
        super().install(entries, where)
        if self._place is not None:
            network, name = self._at()
            try:
                network.install(name, self.installed[-1])
            except (ControllerError, ValueError) as error:
                raise self._failed(f"{where or 'the controller'}: {error}") from None

    def _forward(self, port: int, data: bytes) -> list[tuple[int, bytes]]:
        expected = super()._forward(port, data)
        _check_port(port)
        there = sum(1 <= out <= PORTS for out, _ in expected)
        return self._at()[0].exchange(port, data, there)

    def expect(self, *expected: Sent) -> None:
        """Expect that exactly these packets left; see SwitchUnderTest."""
        for port, _ in expected:
            _check_port(port)
        super().expect(*expected)

    def _read_register(self, name: str) -> list[int]:
        if self._networks.kind == "bmv2":
            raise NotPossibleError("BMv2 does not let a control plane read registers over P4Runtime")
        network, switch = self._at()
        return network.register(switch, name)

    def _read_counter(self, name: str, index: int) -> tuple[int, int]:
        network, switch = self._at()
        return network.counter(switch, name, index)

    def _at(self) -> tuple[LiveNetwork, str]:
        """Return the network and the name of this switch in it."""
        if self._place is None:
            network = self._networks.single()
            self.attach(network, network.topology.switches[0].name)
        assert self._place is not None
        network, name = self._place
        if network.loaded(name) is not self:
            raise NotPossibleError("this test uses two switches in turn, and a live network has one")
        return self._place


def _check_port(port: int) -> None:
    if not 1 <= port <= PORTS:
        raise NotPossibleError(f"the switch of a live test has the ports 1 to {PORTS}, not {port}")


class LiveNetworks:
    """Live networks, as surroundings of tests and as a context manager.

    Args:
        kind: The switch software.
        logs: Folder for the output of the switches.

    Attributes:
        used: Whether a test needed a network.

    Raises:
        ToolError: BMv2 is not installed.
    """

    def __init__(self, kind: SwitchKind, logs: Path) -> None:
        self.kind = kind
        self.used = False
        self.timeout = TIMING[kind].timeout
        self.timed = False
        self._launcher = target(kind).launcher
        self._logs = logs
        self._current: LiveNetwork | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._close()

    def switch(self, loaded: LoadedProgram, story: Story) -> LiveSwitch:
        """Return a new switch with a program. A live switch begins with it once a test uses it."""
        return LiveSwitch(loaded, story, self)

    def after(self, _seconds: float) -> str:
        """Return when a network was ended."""
        return f"after {RUN_SECONDS:g} s in the live network"

    def network(
        self,
        topology: Topology,
        switches: Mapping[str, SwitchUnderTest],
        stations: Mapping[str, Station],
        _seed: int,
    ) -> Run:
        """Return what runs a live network; see Surroundings.

        Raises:
            ExpectationError: A switch refuses the program, or what was installed.
            NotPossibleError: The links need properties that only virtual time or our switch has.
            NetworkError: It cannot be built.
        """
        network = self.built(topology)
        for name, switch in switches.items():
            assert isinstance(switch, LiveSwitch)
            switch.attach(network, name)
        return lambda done, _seconds: network.run(stations, done)

    def single(self) -> LiveNetwork:
        """Return a live network of one switch with a host at each of its ports."""
        return self.built(leaf_spine(spines=0, leaves=1, hosts_per_leaf=PORTS))

    def built(self, topology: Topology) -> LiveNetwork:
        """Return a live network of this topology, the present one if it fits."""
        self.used = True
        plain = topology.model_copy(update={"offload": False})  # a frame is one packet
        if self._current is None or self._current.topology != plain or self._current.spoiled:
            self._close()
            for link in plain.links:
                try:
                    emulated = for_switch(link.properties)
                except NetworkError as error:
                    raise NotPossibleError(str(error)) from None
                if emulated and self.kind == "bmv2":
                    raise NotPossibleError(
                        f"BMv2 emulates no links, and this test needs {', '.join(emulated)}"
                    )
            network = MininetNetwork(plain, self._launcher, self._logs)
            self._current = LiveNetwork(plain, network, TIMING[self.kind])
        return self._current

    def _close(self) -> None:
        if self._current is not None:
            self._current.close()
            self._current = None
