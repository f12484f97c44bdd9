"""Networks that are up, as others on this machine can find them, and how to get a command into one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from topologies.errors import NetworkError
from topologies.runs import Run, all_runs, scratch

_FILE = "network.json"

JOB_SERVICE = "jobs.sock"  # of a run's folder: where workers on its network join


@dataclass(frozen=True, slots=True)
class RunningSwitch:
    """Where a switch serves P4Runtime, inside the sandbox, and what is at the far end of each of its ports."""

    device_id: int
    grpc_port: int
    neighbours: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RunningNetwork:
    """A network by its run; the process ids of its hosts are those inside the sandbox."""

    run: Run
    switches: Mapping[str, RunningSwitch]
    hosts: Mapping[str, int]

    def inside(self, argv: Sequence[str], host: str | None = None) -> list[str]:
        """The command that runs `argv` in the network namespace of the switches, or of `host`.

        Raises:
            NetworkError: the network is gone.
        """
        process = self.run.process(1 if host is None else self.hosts[host])
        if process is None:
            raise NetworkError(f"the run of process {self.run.supervisor} has just ended")
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={process}", *user, "--net", "--", *argv]

    def management(self, switch: str, method: str, request: Mapping[str, Any]) -> list[str]:
        """The command that makes a management call of `switch` and prints what comes back, a line of JSON each.

        Raises:
            NetworkError: it is a host, or the network is gone.
        """
        if switch not in self.switches:
            raise NetworkError(f"{switch} is a host; switches are {', '.join(sorted(self.switches))}")
        address = f"127.0.0.1:{self.switches[switch].grpc_port}"
        return self.inside(
            [sys.executable, "-m", "p4switch.management", address, method, json.dumps(request)]
        )


def announce(switches: Mapping[str, RunningSwitch], hosts: Mapping[str, int]) -> None:
    """Tells that this run's network is up."""
    if folder := scratch():
        network = {
            "switches": {name: asdict(switch) for name, switch in switches.items()},
            "hosts": dict(hosts),
        }
        (folder / _FILE).write_text(json.dumps(network))


def withdraw() -> None:
    """Tells that it no longer is; may be called twice."""
    if folder := scratch():
        (folder / _FILE).unlink(missing_ok=True)


def running_networks() -> list[RunningNetwork]:
    """All of this user's."""
    networks = []
    for run in all_runs():
        path: Path = run.folder / _FILE
        if run.alive and path.exists():
            network = json.loads(path.read_text())
            switches = {name: _running_switch(**switch) for name, switch in network["switches"].items()}
            networks.append(RunningNetwork(run, switches, network["hosts"]))
    return networks


def _running_switch(device_id: int, grpc_port: int, neighbours: Mapping[str, str]) -> RunningSwitch:
    return RunningSwitch(device_id, grpc_port, {int(port): node for port, node in neighbours.items()})


def find_network(node: str, run: int | None = None) -> RunningNetwork:
    """The network that has `node`; `run` is the supervisor's process id, where several have one.

    Raises:
        NetworkError: there is none, or more than one.
    """
    networks = [network for network in running_networks() if run in (None, network.run.supervisor)]
    having = [network for network in networks if node in network.switches or node in network.hosts]
    if len(having) == 1:
        return having[0]
    if having:
        ids = ", ".join(str(network.run.supervisor) for network in having)
        raise NetworkError(f"{node} is in several networks; add --run with one of {ids}")
    if networks:
        names = sorted({name for network in networks for name in (*network.switches, *network.hosts)})
        raise NetworkError(f"no network that is up has {node}; there are {', '.join(names)}")
    raise NetworkError("no network is up; start one in another terminal: fanin up")
