"""Running networks, as other processes on this machine find them, and how to run a command in one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fanin.native.text import nearest, printable
from fanin.testbed.own_switches import OwnSwitch, own_switches
from fanin.testbed.runs import Run, all_processes, all_runs, command_line, scratch
from fanin.testbed.switch_client import SwitchClient
from fanin.topologies.errors import NetworkError

_FILE = "network.json"
_CHOSEN = "FANIN_NETWORK"  # in the environment: the process id of the network to use
# Sockets in a run's folder: workers of its network join at the first; the second is the job service over gRPC.
JOB_SERVICE = "workers.sock"
JOB_SERVICE_GRPC = "jobs.sock"


@dataclass(frozen=True, slots=True)
class RunningSwitch:
    """A switch of a running network.

    Attributes:
        device_id: P4Runtime device id.
        grpc_port: Port where it serves P4Runtime, inside the sandbox.
        engine: Program that runs as a switch, as in the option --switch: embedded, or bmv2.
        neighbours: Node at the far end of each port.
    """

    device_id: int
    grpc_port: int
    engine: str
    neighbours: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RunningHost:
    """A host, given by the first process in its network namespace. The process id is the one inside the sandbox."""

    process: int
    ip: str


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process on a host: its id outside of the sandbox, and its command line."""

    process: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningNetwork:
    """A running network and its run."""

    run: Run
    switches: Mapping[str, RunningSwitch]
    hosts: Mapping[str, RunningHost]

    def inside(self, argv: Sequence[str], host: str | None = None) -> list[str]:
        """Return the command that runs `argv` in the network namespace of the switches, or of `host`.

        Raises:
            NetworkError: The network is gone.
        """
        process = self.run.process(1 if host is None else self.hosts[host].process)
        if process is None:
            raise NetworkError(f"the run of process {self.run.supervisor} has just ended")
        return _in_namespace_of(process, argv)

    def processes(self) -> dict[str, list[RunningProcess]]:
        """Return the processes on each host, whoever has started them, as far as this user may see them."""
        outside = self.run.process_ids
        first = {outside[host.process]: name for name, host in self.hosts.items() if host.process in outside}
        namespaces = {_network_namespace(process): name for process, name in first.items()}
        found: dict[str, list[RunningProcess]] = {name: [] for name in self.hosts}
        for process in all_processes():
            host = namespaces.get(_network_namespace(process)) if process not in first else None
            command = command_line(process) if host is not None else ()
            if host is not None and command:
                found[host].append(RunningProcess(process, command))
        return found

    def client(self, name: str) -> SwitchClient:
        """Return the client of a switch.

        Raises:
            NetworkError: It is a host.
        """
        switch = self.switch(name)
        at = {port: self.hosts[node].ip for port, node in switch.neighbours.items() if node in self.hosts}
        address = f"127.0.0.1:{switch.grpc_port}"
        return SwitchClient(
            name, address, switch.device_id, switch.engine, self.inside, switch.neighbours, at
        )

    def switch(self, name: str) -> RunningSwitch:
        """Return a switch by its name.

        Raises:
            NetworkError: It is a host.
        """
        if name not in self.switches:
            raise NetworkError(f"{name} is a host; switches are {', '.join(sorted(self.switches))}")
        return self.switches[name]


def _in_namespace_of(process: int, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` in the network namespace of a process."""
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    return ["nsenter", f"--target={process}", *user, "--net", "--", *argv]


def _network_namespace(process: int) -> int | None:
    """Return the network namespace of a process; None if it is gone or belongs to another user."""
    try:
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def announce(switches: Mapping[str, RunningSwitch], hosts: Mapping[str, RunningHost]) -> None:
    """Publish that this run's network is up."""
    if folder := scratch():
        network = {
            "switches": {name: asdict(switch) for name, switch in switches.items()},
            "hosts": {name: asdict(host) for name, host in hosts.items()},
        }
        new = folder / f"{_FILE}.new"
        new.write_text(json.dumps(network))
        new.replace(folder / _FILE)  # atomically: others may read it at any time


def withdraw() -> None:
    """Publish that this run's network is no longer up. May be called twice."""
    if folder := scratch():
        (folder / _FILE).unlink(missing_ok=True)


def running_networks() -> list[RunningNetwork]:
    """Return the networks of this user that this version of fanin understands."""
    networks: list[RunningNetwork] = []
    for run in all_runs():
        if run.alive and (text := run.read(_FILE)) is not None:
            with suppress(
                KeyError, TypeError, ValueError
            ):  # another version of fanin has written something else
                network = json.loads(text)
                switches = {name: _running_switch(**switch) for name, switch in network["switches"].items()}
                hosts = {name: RunningHost(**host) for name, host in network["hosts"].items()}
                networks.append(RunningNetwork(run, switches, hosts))
    return networks


def _running_switch(neighbours: Mapping[str, str], **other: Any) -> RunningSwitch:
    return RunningSwitch(neighbours={int(port): node for port, node in neighbours.items()}, **other)


def find_network(node: str | None = None, supervisor: int | None = None) -> RunningNetwork:
    """Return the network that has `node`, or any if None.

    Args:
        node: Name of a switch or host.
        supervisor: Process id of the network's fanin, needed if there are several networks. None takes that of the
            environment variable FANIN_NETWORK, if it is set.

    Raises:
        NetworkError: There is no such network, or more than one.
    """
    supervisor = _chosen() if supervisor is None else supervisor
    networks = [network for network in running_networks() if supervisor in (None, network.run.supervisor)]
    having = [
        network for network in networks if node is None or node in network.switches or node in network.hosts
    ]
    if len(having) == 1:
        return having[0]
    if having:
        ids = ", ".join(str(network.run.supervisor) for network in having)
        what = "several networks are up" if node is None else f"{node} is in several networks"
        raise NetworkError(f"{what}; add --network with one of {ids}")
    if networks:
        names = sorted({name for network in networks for name in (*network.switches, *network.hosts)})
        near = nearest(node or "", names, f"there are {', '.join(names)}")
        raise NetworkError(f"no network that is up has {node}{near}")
    if supervisor is not None and (others := running_networks()):
        ids = ", ".join(str(network.run.supervisor) for network in others)
        raise NetworkError(f"process {supervisor} runs no network; there are --network {ids}")
    raise NetworkError("no network is up; start one in another terminal: fanin up")


def _chosen() -> int | None:
    """Return the network of the environment; None if it names none."""
    text = os.environ.get(_CHOSEN)
    if not text:
        return None
    if not text.isdecimal():
        raise NetworkError(
            f"{_CHOSEN}: {printable(text)} is no process id; `fanin ps` lists those of networks"
        )
    return int(text)


def find_switch(name: str, supervisor: int | None = None) -> SwitchClient:
    """Return the client of a switch, of a running network or started by hand.

    Args:
        name: Name of a switch of a running network, or process id of one that was started by hand. `fanin ps` lists
            both. Or HOST:PORT where a switch serves P4Runtime; HOST:PORT/N if its device id N is not known here.
        supervisor: Process id of the network's fanin, needed if there are several networks.

    Raises:
        NetworkError: There is no such switch, or several networks have one.
    """
    if name.isdecimal():
        return _client_of_process(int(name))
    if ":" in name:
        return _client_at(name)
    try:
        return find_network(name, supervisor).client(name)
    except NetworkError as error:
        own = ", ".join(str(switch.process) for switch in own_switches())
        raise NetworkError(
            f"{error}" + (f"; switches started by hand: {own} (fanin ps)" if own else "")
        ) from None


def _client_of_process(process: int) -> SwitchClient:
    switches = {switch.process: switch for switch in own_switches()}
    if process not in switches:
        known = ", ".join(map(str, switches)) or "none"
        raise NetworkError(f"process {process} is no switch that was started by hand; there are {known}")
    return _own_client(switches[process], str(process))


def _client_at(name: str) -> SwitchClient:
    address, slash, number = name.partition("/")
    if not address.rpartition(":")[2].isdecimal() or (slash and not number.isdecimal()):
        raise NetworkError(f"{name}: write HOST:PORT, or HOST:PORT/N for the device id N")
    here = _network_namespace(os.getpid())
    for switch in own_switches():
        if _same(switch.address, address) and _network_namespace(switch.process) in (here, None):
            found = _own_client(switch, name)
            return replace(found, device_id=int(number)) if slash else found
    return SwitchClient(name, address, int(number or 0), "embedded")


def _same(one: str | None, other: str) -> bool:
    return one is not None and one.replace("localhost", "127.0.0.1") == other.replace(
        "localhost", "127.0.0.1"
    )


def _own_client(switch: OwnSwitch, name: str) -> SwitchClient:
    if switch.address is None:
        raise NetworkError(
            f"{name} is simple_switch, which has no P4Runtime: type simple_switch_CLI --thrift-port "
            f"{switch.thrift_port}, or start simple_switch_grpc instead"
        )
    # None: it belongs to another user, as after sudo. Its namespace cannot be entered, but may be this one.
    elsewhere = _network_namespace(switch.process) not in (_network_namespace(os.getpid()), None)
    inside = partial(_in_namespace_of, switch.process) if elsewhere else list
    return SwitchClient(name, switch.address, switch.device_id, switch.engine, inside)
