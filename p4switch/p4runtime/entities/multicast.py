"""The packet replication engine over P4Runtime: multicast groups and clone sessions.

P4Runtime specification, "MulticastGroupEntry" and "CloneSessionEntry". A replica leaves by the first of its ports, its
own and then its backups', that is up; if none is, by its own, where it is dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeVar

import grpc

from p4switch.engine.engine import Engine
from p4switch.engine.entries import Clones, Replica
from p4switch.engine.library import SESSIONS
from p4switch.p4runtime.codec.values import decode_value
from p4switch.p4runtime.errors import P4RuntimeError, invalid, not_found
from p4switch.p4runtime.proto import p4r
from p4switch.p4runtime.watch import WatchedPorts

# v1model: standard_metadata.mcast_grp and egress_rid are bit<16>, egress_port is bit<9>.
_MAX_GROUP = 0xFFFF
_MAX_INSTANCE = 0xFFFF
_PORT_WIDTH = 9

_Message = TypeVar("_Message", p4r.MulticastGroupEntry, p4r.CloneSessionEntry)


class _Replicators(ABC, Generic[_Message]):
    """The groups or sessions of one pipeline, kept as messages since a read returns what was written."""

    def __init__(self, engine: Engine, ports: WatchedPorts) -> None:
        self._engine = engine
        self._ports = ports
        self._kept: dict[int, _Message] = {}

    def insert(self, message: _Message) -> None:
        """Add one."""
        self._insert(message)
        self._keep(message)

    def modify(self, message: _Message) -> None:
        """Replace everything about one."""
        self._modify(message)
        self._keep(message)

    def delete(self, message: _Message) -> None:
        """Remove one."""
        del self._kept[self._delete(message)]

    def read(self, query: _Message) -> Iterator[_Message]:
        """One, NOT_FOUND if there is none; or every one where the id is 0."""
        number = self._number(query)
        if number == 0:
            yield from list(self._kept.values())
        elif number in self._kept:
            yield self._kept[number]
        else:
            raise not_found(f"there is no {self._name(query)}")

    def export(self) -> Iterator[p4r.Update]:
        """The updates that make them anew."""
        for message in self._kept.values():
            entry = self._entry(message)
            yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(packet_replication_engine_entry=entry))

    def watch(self) -> None:
        """Follows a change of the ports' status."""
        for message in self._kept.values():
            if any(replica.backup_replicas for replica in message.replicas):
                self._modify(message)

    def _keep(self, message: _Message) -> None:
        copy = type(message)()
        copy.CopyFrom(message)
        self._kept[self._number(message)] = copy

    def _replicas(self, message: _Message) -> tuple[Replica, ...]:
        """The replicas to be made now; INVALID_ARGUMENT, also if two of all that are named are the same."""
        name = self._name(message)
        found, named = [], []
        for replica in message.replicas:
            own = _decode(_own_port(replica, name), replica.instance, name)
            backups: list[Replica] = [
                _decode(
                    decode_value(b.port, _PORT_WIDTH, f"a backup replica's port in {name}"), b.instance, name
                )
                for b in replica.backup_replicas
            ]
            if own.port in [backup.port for backup in backups]:
                raise invalid(f"{name}: the replica at port {own.port} has a backup at the same port")
            choices = [own, *backups]
            named += choices
            found.append(next((choice for choice in choices if choice.port not in self._ports.down), own))
        if len(set(named)) < len(named):
            raise invalid(f"{name}: two replicas have the same port and instance")
        return tuple(found)

    @staticmethod
    @abstractmethod
    def _number(message: _Message) -> int: ...

    @staticmethod
    @abstractmethod
    def _name(message: _Message) -> str: ...

    @staticmethod
    @abstractmethod
    def _entry(message: _Message) -> p4r.PacketReplicationEngineEntry: ...

    @abstractmethod
    def _insert(self, message: _Message) -> None: ...

    @abstractmethod
    def _modify(self, message: _Message) -> None: ...

    @abstractmethod
    def _delete(self, message: _Message) -> int: ...


class MulticastGroups(_Replicators[p4r.MulticastGroupEntry]):
    """The multicast groups."""

    @staticmethod
    def _number(message: p4r.MulticastGroupEntry) -> int:
        return message.multicast_group_id

    @staticmethod
    def _name(message: p4r.MulticastGroupEntry) -> str:
        return f"multicast group {message.multicast_group_id}"

    @staticmethod
    def _entry(message: p4r.MulticastGroupEntry) -> p4r.PacketReplicationEngineEntry:
        return p4r.PacketReplicationEngineEntry(multicast_group_entry=message)

    def _insert(self, message: p4r.MulticastGroupEntry) -> None:
        self._engine.multicast_insert(_group_id(message), self._replicas(message))

    def _modify(self, message: p4r.MulticastGroupEntry) -> None:
        self._engine.multicast_modify(_group_id(message), self._replicas(message))

    def _delete(self, message: p4r.MulticastGroupEntry) -> int:
        self._engine.multicast_delete(_group_id(message))
        return message.multicast_group_id


class CloneSessions(_Replicators[p4r.CloneSessionEntry]):
    """The clone sessions, with what becomes of their clones."""

    @staticmethod
    def _number(message: p4r.CloneSessionEntry) -> int:
        return message.session_id

    @staticmethod
    def _name(message: p4r.CloneSessionEntry) -> str:
        return f"clone session {message.session_id}"

    @staticmethod
    def _entry(message: p4r.CloneSessionEntry) -> p4r.PacketReplicationEngineEntry:
        return p4r.PacketReplicationEngineEntry(clone_session_entry=message)

    def _insert(self, message: p4r.CloneSessionEntry) -> None:
        self._engine.session_insert(_session_id(message), self._replicas(message), self._clones(message))

    def _modify(self, message: p4r.CloneSessionEntry) -> None:
        self._engine.session_modify(_session_id(message), self._replicas(message), self._clones(message))

    def _delete(self, message: p4r.CloneSessionEntry) -> int:
        self._engine.session_delete(_session_id(message))
        return message.session_id

    def _clones(self, message: p4r.CloneSessionEntry) -> Clones:
        name, service_class = self._name(message), message.class_of_service
        if service_class >= self._engine.priority_queues:
            raise invalid(
                f"{name}: class_of_service {service_class} needs a queue of that priority: "
                f"the ports have {self._engine.priority_queues} (--priority-queues)"
            )
        if message.packet_length_bytes < 0:
            raise invalid(f"{name}: packet_length_bytes {message.packet_length_bytes} is negative")
        if message.packet_length_bytes == 0:
            return Clones(service_class=service_class)
        return Clones(message.packet_length_bytes, service_class)


def _session_id(message: p4r.CloneSessionEntry) -> int:
    session = message.session_id
    if not 0 < session < SESSIONS:
        raise invalid(f"clone session {session} is not in 1..{SESSIONS - 1}")
    return session


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


def _own_port(message: p4r.Replica, group: str) -> int:
    match message.WhichOneof("port_kind"):
        case "port":
            return decode_value(message.port, _PORT_WIDTH, f"a replica's port in {group}")
        case "egress_port":
            if message.egress_port >> _PORT_WIDTH:
                raise invalid(f"{group}: port {message.egress_port} does not fit bit<{_PORT_WIDTH}>")
            return message.egress_port
    raise invalid(f"{group}: a replica has no port")


def _decode(port: int, instance: int, group: str) -> Replica:
    if instance > _MAX_INSTANCE:
        raise invalid(f"{group}: instance {instance} is above {_MAX_INSTANCE}, egress_rid's largest value")
    return Replica(port, instance)
