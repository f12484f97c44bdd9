"""The controllers that are told what happens in the switch: packets, digests, idle entries."""

from __future__ import annotations

from collections.abc import Mapping

from fanin.p4switch.p4runtime.arbitration import Client
from fanin.p4switch.p4runtime.proto import p4r
from fanin.p4switch.p4runtime.roles import RoleAccess


class Controllers:
    """The primary of each role, as arbitration found them last.

    `primaries` is replaced as a whole, and read without the service's lock: a thread of the engine sends, for whose end
    the holder of the lock may be waiting.
    """

    def __init__(self) -> None:
        self.primaries: Mapping[Client, RoleAccess] = {}

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Sends to those whose roles receive such a message."""
        for client, access in self.primaries.items():
            if access.receives(message):
                client.offer(message)
