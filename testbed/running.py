"""Running networks, as other processes on this machine find them, and how to run a command in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fanin.native.text import nearest
from fanin.testbed.runs import Run, all_processes, all_runs, command_line, scratch
from fanin.topologies.errors import NetworkError

_FILE = "network.json"
_MANAGEMENT, _OBSERVER = (
    "fanin.p4switch.management",
    "fanin.controller.observer",
)  # commands that run where the switches are

# Sockets in a run's folder: workers of its network join at the first; the second is the job service over gRPC.
JOB_SERVICE = "workers.sock"
JOB_SERVICE_GRPC = "jobs.sock"

# What a user of BMv2 can do instead, by the missing management call.
_NO_LINKS = "emulates no links: fanin up --rate sets the rate of all; without --switch bmv2 each has its own properties"
_NO_TRACES = (
    "keeps no traces: fanin trace --on {switch} --packet HEX traces a given packet with its program and entries; "
    "for BMv2's own log start fanin up with FANIN_BMV2='simple_switch_grpc --log-console -L trace', and read --logs"
)
_NO_INJECTION = "accepts packets only at its ports; send one from a host with fanin exec HOST COMMAND"
_ON_BMV2 = {"Links": _NO_LINKS, "SetLink": _NO_LINKS, "Trace": _NO_TRACES, "Inject": _NO_INJECTION}


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
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={process}", *user, "--net", "--", *argv]

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

    def management(self, switch: str, method: str, request: Mapping[str, Any]) -> list[str]:
        """Return the command that makes a management call of `switch` and prints the answers, one line of JSON each.

        Raises:
            NetworkError: It is a host or BMv2, or the network is gone.
        """
        if self.switch(switch).engine == "bmv2":
            raise NetworkError(f"{switch} is BMv2, which {_ON_BMV2[method].format(switch=switch)}")
        return self._client(switch, _MANAGEMENT, method, json.dumps(request))

    def call(self, switch: str, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make a management call that has one answer, and return the answer.

        Raises:
            NetworkError: It is a host or BMv2, the network is gone, or the switch refuses.
        """
        [answer] = _answers(switch, self.management(switch, method, request))
        return answer

    def observe(self, switch: str, what: str) -> list[dict[str, Any]]:
        """Return the result of method `what` of an observer (controller/observer.py) of `switch`.

        Raises:
            NetworkError: It is a host, the network is gone, or the switch refuses.
        """
        command = self._client(switch, _OBSERVER, str(self.switch(switch).device_id), what)
        return _answers(switch, command)

    def switch(self, name: str) -> RunningSwitch:
        """Return a switch by its name.

        Raises:
            NetworkError: It is a host.
        """
        if name not in self.switches:
            raise NetworkError(f"{name} is a host; switches are {', '.join(sorted(self.switches))}")
        return self.switches[name]

    def _client(self, switch: str, module: str, *arguments: str) -> list[str]:
        address = f"127.0.0.1:{self.switch(switch).grpc_port}"
        # -P: a module in the current folder must not shadow ours.
        return self.inside([sys.executable, "-P", "-m", module, address, *arguments])


def _answers(switch: str, command: Sequence[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        module, _, why = said.partition(": ")
        # Any other error ends with its reason in the last line, as in Python.
        raise NetworkError(
            f"{switch}: {why if module in (_MANAGEMENT, _OBSERVER) else said.splitlines()[-1]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


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
        supervisor: Process id of the network's fanin, needed if there are several networks.

    Raises:
        NetworkError: There is no such network, or more than one.
    """
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
