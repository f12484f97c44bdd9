"""The packet replication engine over P4Runtime: multicast groups and clone sessions.

P4Runtime specification, "MulticastGroupEntry" and "CloneSessionEntry".
"""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from p4switch.engine import Engine
from p4switch.entries import Replica
from p4switch.p4runtime_errors import P4RuntimeError, invalid, not_found, unimplemented
from p4switch.p4runtime_proto import p4r
from p4switch.p4runtime_values import decode_value
from p4switch.replicas import LONGEST, SESSIONS

# v1model: standard_metadata.mcast_grp and egress_rid are bit<16>, egress_port is bit<9>.
_MAX_GROUP = 0xFFFF
_MAX_INSTANCE = 0xFFFF
_PORT_WIDTH = 9


class MulticastGroups:
    """The multicast groups of one pipeline, kept as messages since a read returns what was written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._groups: dict[int, p4r.MulticastGroupEntry] = {}

    def insert(self, message: p4r.MulticastGroupEntry) -> None:
        """Add a group."""
        self._engine.multicast_insert(_group_id(message), _replicas(message))
        self._keep(message)

    def modify(self, message: p4r.MulticastGroupEntry) -> None:
        """Replace a group's replicas and metadata."""
        self._engine.multicast_modify(_group_id(message), _replicas(message))
        self._keep(message)

    def delete(self, message: p4r.MulticastGroupEntry) -> None:
        """Remove a group."""
        self._engine.multicast_delete(_group_id(message))
        del self._groups[message.multicast_group_id]

    def read(self, query: p4r.MulticastGroupEntry) -> Iterator[p4r.MulticastGroupEntry]:
        """One group, NOT_FOUND if there is none; or every group where the id is 0."""
        if query.multicast_group_id == 0:
            yield from list(self._groups.values())
        elif query.multicast_group_id in self._groups:
            yield self._groups[query.multicast_group_id]
        else:
            raise not_found(f"there is no multicast group {query.multicast_group_id}")

    def export(self) -> Iterator[p4r.Update]:
        """The updates that make these groups anew."""
        for group in self._groups.values():
            entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
            yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))

    def _keep(self, message: p4r.MulticastGroupEntry) -> None:
        copy = p4r.MulticastGroupEntry()
        copy.CopyFrom(message)
        self._groups[message.multicast_group_id] = copy


class CloneSessions:
    """The clone sessions of one pipeline (specification, "CloneSessionEntry"), kept as messages."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sessions: dict[int, p4r.CloneSessionEntry] = {}

    def insert(self, message: p4r.CloneSessionEntry) -> None:
        """Add a session."""
        self._engine.session_insert(_session_id(message), _replicas(message), _longest(message))
        self._keep(message)

    def modify(self, message: p4r.CloneSessionEntry) -> None:
        """Replace a session's replicas, and how long its clones may be."""
        self._engine.session_modify(_session_id(message), _replicas(message), _longest(message))
        self._keep(message)

    def delete(self, message: p4r.CloneSessionEntry) -> None:
        """Remove a session."""
        self._engine.session_delete(_session_id(message))
        del self._sessions[message.session_id]

    def read(self, query: p4r.CloneSessionEntry) -> Iterator[p4r.CloneSessionEntry]:
        """One session, NOT_FOUND if there is none; or every session where the id is 0."""
        if query.session_id == 0:
            yield from list(self._sessions.values())
        elif query.session_id in self._sessions:
            yield self._sessions[query.session_id]
        else:
            raise not_found(f"there is no clone session {query.session_id}")

    def export(self) -> Iterator[p4r.Update]:
        """The updates that make these sessions anew."""
        for session in self._sessions.values():
            entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
            yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))

    def _keep(self, message: p4r.CloneSessionEntry) -> None:
        copy = p4r.CloneSessionEntry()
        copy.CopyFrom(message)
        self._sessions[message.session_id] = copy


def _session_id(message: p4r.CloneSessionEntry) -> int:
    session = message.session_id
    if not 0 < session < SESSIONS:
        raise invalid(f"clone session {session} is not in 1..{SESSIONS - 1}")
    return session


def _longest(message: p4r.CloneSessionEntry) -> int:
    if message.class_of_service:
        raise unimplemented(
            f"clone session {message.session_id}: a port has one queue: leave class_of_service unset"
        )
    if message.packet_length_bytes < 0:
        raise invalid(
            f"clone session {message.session_id}: packet_length_bytes {message.packet_length_bytes} is negative"
        )
    return message.packet_length_bytes or LONGEST


def _group_id(message: p4r.MulticastGroupEntry) -> int:
    group = message.multicast_group_id
    if group == 0:
        raise invalid("0 is not a multicast group: it means no multicast to the data plane")
    if group > _MAX_GROUP:
        raise P4RuntimeError(
            grpc.StatusCode.OUT_OF_RANGE,
            f"multicast group {group} is above {_MAX_GROUP}, mcast_grp's largest value",
        )
    return group


def _replicas(message: p4r.MulticastGroupEntry | p4r.CloneSessionEntry) -> tuple[Replica, ...]:
    if isinstance(message, p4r.CloneSessionEntry):
        name = f"clone session {message.session_id}"
    else:
        name = f"multicast group {message.multicast_group_id}"
    replicas = tuple(_replica(replica, name) for replica in message.replicas)
    if len(set(replicas)) < len(replicas):
        raise invalid(f"{name}: two replicas have the same port and instance")
    return replicas


def _replica(message: p4r.Replica, group: str) -> Replica:
    if message.backup_replicas:
        raise unimplemented(f"{group}: backup replicas are not supported")
    match message.WhichOneof("port_kind"):
        case "port":
            port = decode_value(message.port, _PORT_WIDTH, f"a replica's port in {group}")
        case "egress_port":
            port = message.egress_port
            if port >> _PORT_WIDTH:
                raise invalid(f"{group}: port {port} does not fit bit<{_PORT_WIDTH}>")
        case _:
            raise invalid(f"{group}: a replica has no port")
    if message.instance > _MAX_INSTANCE:
        raise invalid(
            f"{group}: instance {message.instance} is above {_MAX_INSTANCE}, egress_rid's largest value"
        )
    return Replica(port, message.instance)
