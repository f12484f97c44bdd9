"""Watch ports: members of a group that are skipped, and replicas that have backups, while a port is down.

P4Runtime specification, "Action Profile Group Programming". A group whose members are all skipped is like an empty
group: it does nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from fanin.p4switch.p4runtime.codec.values import decode_value
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4r

_PORT_WIDTH = 32

Watching = p4r.ActionProfileGroup.Member | p4r.ActionProfileAction


@dataclass
class WatchedPorts:
    """Ports of the device, and those that are down now."""

    known: frozenset[int]
    down: frozenset[int] = frozenset()

    def skips(self, member: Watching, what: str) -> bool:
        """Return whether a member is skipped because the port it watches is down. `what` names the group.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if it watches a port that does not exist.
        """
        port = self._port(member, what)
        if port is not None and port not in self.known:
            raise invalid(f"{what}: the watch port {port} is not a port of this device")
        return port in self.down

    def _port(self, member: Watching, what: str) -> int | None:
        match member.WhichOneof("watch_kind"):
            case "watch_port" if member.watch_port:
                return decode_value(member.watch_port, _PORT_WIDTH, f"{what}: watch_port")
            case "watch":
                return int(member.watch)
        return None


def watches(member: Watching) -> bool:
    """Return whether a member watches a port."""
    return member.WhichOneof("watch_kind") is not None
