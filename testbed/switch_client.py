"""Client of a running switch, for commands: it calls the switch from within the network namespace where it listens."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fanin.topologies.errors import NetworkError

_MANAGEMENT, _OBSERVER = (
    "fanin.p4switch.management",
    "fanin.controller.observer",
)  # commands that run where the switch is

# What a user of BMv2 can do instead, by the missing management call.
_NO_LINKS = "emulates no links: fanin up --rate sets the rate of all; without --switch bmv2 each has its own properties"
_NO_TRACES = (
    "keeps no traces: fanin trace --on {switch} --packet HEX traces a given packet with its program and entries; "
    "for BMv2's own log start it with --log-console -L trace; fanin up does so with "
    "FANIN_BMV2='simple_switch_grpc --log-console -L trace', and --logs shows it"
)
_NO_INJECTION = (
    "accepts packets only at its ports; send one from a host with fanin exec HOST COMMAND, "
    "or into the other end of the interface"
)
_ON_BMV2 = {"Links": _NO_LINKS, "SetLink": _NO_LINKS, "Trace": _NO_TRACES, "Inject": _NO_INJECTION}


@dataclass(frozen=True, slots=True)
class SwitchClient:
    """Client of a switch.

    Attributes:
        name: The switch as the user has written it, for messages.
        address: Host and port of its P4Runtime server.
        device_id: P4Runtime device id.
        engine: Program that runs as a switch, as in the option --switch: embedded, or bmv2.
        inside: Returns the command that runs a command in its network namespace.
        neighbours: Node at the far end of each port, as far as they are known.
        addresses: IP address of the host at each port, as far as they are known.
    """

    name: str
    address: str
    device_id: int
    engine: str
    inside: Callable[[Sequence[str]], list[str]] = list
    neighbours: Mapping[int, str] = field(default_factory=dict)
    addresses: Mapping[int, str] = field(default_factory=dict)

    def management(self, method: str, request: Mapping[str, Any]) -> list[str]:
        """Return the command that makes a management call and prints the answers, one line of JSON each.

        Raises:
            NetworkError: It is BMv2, or its network is gone.
        """
        if self.engine == "bmv2":
            raise NetworkError(f"{self.name} is BMv2, which {_ON_BMV2[method].format(switch=self.name)}")
        return self._command(_MANAGEMENT, method, json.dumps(request))

    def call(self, method: str, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make a management call that has one answer, and return the answer.

        Raises:
            NetworkError: It is BMv2, it is gone, or it refuses.
        """
        [answer] = self._answers(self.management(method, request))
        return answer

    def observe(self, what: str) -> list[dict[str, Any]]:
        """Return the result of method `what` of an observer (controller/observer.py).

        Raises:
            NetworkError: It is gone, or refuses.
        """
        return self._answers(self._command(_OBSERVER, str(self.device_id), what))

    def _command(self, module: str, *arguments: str) -> list[str]:
        # -P: a module in the current folder must not shadow ours.
        return self.inside([sys.executable, "-P", "-m", module, self.address, *arguments])

    def _answers(self, command: Sequence[str]) -> list[dict[str, Any]]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip() or f"exit status {done.returncode}"
            module, _, why = said.partition(": ")
            # Any other error ends with its reason in the last line, as in Python.
            raise NetworkError(
                f"{self.name}: {why if module in (_MANAGEMENT, _OBSERVER) else said.splitlines()[-1]}"
            )
        return [json.loads(line) for line in done.stdout.splitlines()]
