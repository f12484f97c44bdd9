"""The rights of a controller's role: everything, or what its configuration grants.

P4Runtime specification, "Role Config", leaves the configuration's format to server and controllers. This server uses
Stratum's and finsy's `stratum.P4RoleConfig`: the P4Info ids that the role may write and is notified of, and its
packets.
"""

from __future__ import annotations

from google.protobuf.any_pb2 import Any
from google.protobuf.message import DecodeError

from fanin.p4switch.p4runtime.codec.values import encode_value
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4r, stratum


class RoleAccess:
    """Access rights of a role. Without a configuration it may access everything but the objects of other roles.

    An object belongs to a role if it or its table is annotated `@p4runtime_role("name")`. The default role, without a
    name, may access these, too.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT for a configuration of another type, or with an id both exclusive and shared.
    """

    def __init__(self, config: Any | None = None, name: str = "") -> None:
        self.config = config
        self.name = name
        self.exclusive: frozenset[int] = frozenset()
        self.shared: frozenset[int] = frozenset()
        self.can_push_pipeline = self._receives_packets = True
        self._filter: tuple[int, bytes] | None = None
        if config is None:
            return
        message = stratum.P4RoleConfig()
        try:
            understood = config.Unpack(message)
        except DecodeError:
            understood = False
        if not understood:
            raise invalid(f"a role's config is a stratum.P4RoleConfig here, not {config.type_url!r}")
        self.exclusive = frozenset(message.exclusive_p4_ids)
        self.shared = frozenset(message.shared_p4_ids)
        if both := self.exclusive & self.shared:
            raise invalid(f"the role's config has the id {min(both):#x} both exclusive and shared")
        self.can_push_pipeline = message.can_push_pipeline
        self._receives_packets = message.receives_packet_ins
        if message.HasField("packet_in_filter"):
            wanted = message.packet_in_filter
            self._filter = wanted.metadata_id, encode_value(int.from_bytes(wanted.value, "big"))

    @property
    def is_full(self) -> bool:
        """Return whether the role may do everything."""
        return self.config is None

    def conflict(self, other: RoleAccess) -> int | None:
        """Return an id that is exclusive to one of two roles and also given to the other, or None."""
        ids = self.exclusive & (other.exclusive | other.shared) | self.shared & other.exclusive
        return min(ids, default=None)

    def names(self, p4_id: int) -> bool:
        """Return whether the configuration contains that P4Info id."""
        return p4_id in self.exclusive or p4_id in self.shared

    def receives(self, message: p4r.StreamMessageResponse) -> bool:
        """Return whether the role receives a packet-in or a notification."""
        if self.is_full:
            return True
        match message.WhichOneof("update"):
            case "packet":
                metadata = [(m.metadata_id, m.value) for m in message.packet.metadata]
                return self._receives_packets and (self._filter is None or self._filter in metadata)
            case "digest":
                return self.names(message.digest.digest_id)
            case _:  # idle entries, of one table
                return self.names(message.idle_timeout_notification.table_entry[0].table_id)
