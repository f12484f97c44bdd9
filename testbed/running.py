"""Networks that are up, as others on this machine can find them, and how to get a command into one."""

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

from fanin.testbed.runs import Run, all_processes, all_runs, command_line, scratch
from fanin.topologies.errors import NetworkError

_FILE = "network.json"
_MANAGEMENT, _OBSERVER = (
    "fanin.p4switch.management",
    "fanin.controller.observer",
)  # commands that run where the switches are

# Of a run's folder: where workers on its network join, and where anybody reaches the job service over gRPC.
JOB_SERVICE = "workers.sock"
JOB_SERVICE_GRPC = "jobs.sock"

# What a user of BMv2 can do instead, by the management call that it does not have.
_NO_LINKS = "emulates no links: fanin up --rate sets the rate of all; without --switch bmv2 each has its own properties"
_NO_TRACES = (
    "keeps no traces: fanin trace --on {switch} --packet HEX traces a packet of yours with its program and entries; "
    "for BMv2's own log start fanin up with FANIN_BMV2='simple_switch_grpc --log-console -L trace', and read --logs"
)
_NO_INJECTION = "takes no packets but those of its ports: send one from a host with fanin exec HOST COMMAND"
_ON_BMV2 = {"Links": _NO_LINKS, "SetLink": _NO_LINKS, "Trace": _NO_TRACES, "Inject": _NO_INJECTION}


@dataclass(frozen=True, slots=True)
class RunningSwitch:
    """Where a switch serves P4Runtime, inside the sandbox, and what is at the far end of each of its ports.

    engine: what runs as a switch, as the option --switch calls it: embedded, or bmv2.
    """

    device_id: int
    grpc_port: int
    engine: str
    neighbours: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class RunningHost:
    """A host by the first process in its network namespace, whose id is the one inside the sandbox."""

    process: int
    ip: str


@dataclass(frozen=True, slots=True)
class RunningProcess:
    """A process on a host; its id outside of the sandbox, and its command line."""

    process: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunningNetwork:
    """A network by its run."""

    run: Run
    switches: Mapping[str, RunningSwitch]
    hosts: Mapping[str, RunningHost]

    def inside(self, argv: Sequence[str], host: str | None = None) -> list[str]:
        """The command that runs `argv` in the network namespace of the switches, or of `host`.

        Raises:
            NetworkError: the network is gone.
        """
        process = self.run.process(1 if host is None else self.hosts[host].process)
        if process is None:
            raise NetworkError(f"the run of process {self.run.supervisor} has just ended")
        user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", f"--target={process}", *user, "--net", "--", *argv]

    def processes(self) -> dict[str, list[RunningProcess]]:
        """What runs on each host, whoever has started it, as far as this user may see."""
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
        """The command that makes a management call of `switch` and prints what comes back, a line of JSON each.

        Raises:
            NetworkError: it is a host or BMv2, or the network is gone.
        """
        if self.switch(switch).engine == "bmv2":
            raise NetworkError(f"{switch} is BMv2, which {_ON_BMV2[method].format(switch=switch)}")
        return self._client(switch, _MANAGEMENT, method, json.dumps(request))

    def call(self, switch: str, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """What comes back from a management call that has one answer.

        Raises:
            NetworkError: it is a host or BMv2, the network is gone, or the switch refuses.
        """
        [answer] = _answers(switch, self.management(switch, method, request))
        return answer

    def observe(self, switch: str, what: str) -> list[dict[str, Any]]:
        """What the method `what` of an observer (controller/observer.py) of `switch` gives.

        Raises:
            NetworkError: it is a host, the network is gone, or the switch refuses.
        """
        command = self._client(switch, _OBSERVER, str(self.switch(switch).device_id), what)
        return _answers(switch, command)

    def switch(self, name: str) -> RunningSwitch:
        """A switch by its name.

        Raises:
            NetworkError: it is a host.
        """
        if name not in self.switches:
            raise NetworkError(f"{name} is a host; switches are {', '.join(sorted(self.switches))}")
        return self.switches[name]

    def _client(self, switch: str, module: str, *arguments: str) -> list[str]:
        address = f"127.0.0.1:{self.switch(switch).grpc_port}"
        # -P: what lies in the current folder is not ours, whatever it is called.
        return self.inside([sys.executable, "-P", "-m", module, address, *arguments])


def _answers(switch: str, command: Sequence[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        module, _, why = said.partition(": ")
        # Whatever else ends it tells why last, as Python does.
        raise NetworkError(
            f"{switch}: {why if module in (_MANAGEMENT, _OBSERVER) else said.splitlines()[-1]}"
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def _network_namespace(process: int) -> int | None:
    """None: it has gone, or is none of ours."""
    try:
        return Path(f"/proc/{process}/ns/net").stat().st_ino
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


def announce(switches: Mapping[str, RunningSwitch], hosts: Mapping[str, RunningHost]) -> None:
    """Tells that this run's network is up."""
    if folder := scratch():
        network = {
            "switches": {name: asdict(switch) for name, switch in switches.items()},
            "hosts": {name: asdict(host) for name, host in hosts.items()},
        }
        new = folder / f"{_FILE}.new"
        new.write_text(json.dumps(network))
        new.replace(folder / _FILE)  # at once: others look for it all the time


def withdraw() -> None:
    """Tells that it no longer is; may be called twice."""
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
    """The network that has `node` (None: any); `supervisor` is its fanin's process id, where there are several.

    Raises:
        NetworkError: there is none, or more than one.
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
        raise NetworkError(f"no network that is up has {node}; there are {', '.join(names)}")
    if supervisor is not None and (others := running_networks()):
        ids = ", ".join(str(network.run.supervisor) for network in others)
        raise NetworkError(f"process {supervisor} runs no network; there are --network {ids}")
    raise NetworkError("no network is up; start one in another terminal: fanin up")
