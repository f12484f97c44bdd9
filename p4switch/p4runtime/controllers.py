"""The controllers that receive packets, digests and notifications of idle entries."""

from __future__ import annotations

from collections.abc import Mapping

from fanin.p4switch.p4runtime.arbitration import Client
from fanin.p4switch.p4runtime.proto import p4r
from fanin.p4switch.p4runtime.roles import RoleAccess


class Controllers:
    """Primary controllers of each role, according to the latest arbitration.

    `primaries` is replaced as a whole and read without the service's lock. A thread of the engine sends messages, and
    the holder of the lock may be waiting for that thread to end.
    """

    def __init__(self) -> None:
        self.primaries: Mapping[Client, RoleAccess] = {}

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Send a message to the controllers whose roles receive it."""
        for client, access in self.primaries.items():
            if access.receives(message):
                client.offer(message)
