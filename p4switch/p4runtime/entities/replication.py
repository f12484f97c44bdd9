"""The packet replication engine: the common part of multicast groups and clone sessions.

A replica leaves through the first of its ports that is up: its own, then its backups'. If none is up, it goes to its
own port, where it is dropped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar, TypeVar

from fanin.p4switch.engine.replicas import ReplicaGroups
from fanin.p4switch.entries import DEFAULT_CLONE_OPTIONS, Clones, Replica
from fanin.p4switch.p4runtime.codec.values import decode_value
from fanin.p4switch.p4runtime.entities.kind import DynamicKind
from fanin.p4switch.p4runtime.errors import invalid, not_found
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r

# v1model: standard_metadata.egress_rid is bit<16>, egress_port is bit<9>.
_MAX_INSTANCE = 0xFFFF
_PORT_WIDTH = 9

_Message = TypeVar("_Message", p4r.MulticastGroupEntry, p4r.CloneSessionEntry)


class ReplicationKind(DynamicKind[_Message]):
    """Numbered lists of replicas, stored as messages because reads return what was written.

    `what` is their name in errors, `number_field` is the field with their number.
    """

    what: ClassVar[str]
    number_field: ClassVar[str]

    def __init__(self, objects: PipelineObjects) -> None:
        self._engine = objects.engine
        self._ports = objects.ports
        self._messages: dict[int, _Message] = {}

    def read(self, query: _Message) -> Iterator[_Message]:
        """Yield one, or raise NOT_FOUND; yield all if the id is 0."""
        number = self._number(query)
        if number == 0:
            yield from list(self._messages.values())
        elif number in self._messages:
            yield self._messages[number]
        else:
            raise not_found(f"there is no {self._name(query)}")

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, _Message]]:
        """Yield all of them."""
        for message in self._messages.values():
            yield p4r.Update.INSERT, message

    def follow_ports(self) -> None:
        """Replace lists with backup replicas, which may use other ports now."""
        for message in self._messages.values():
            if any(replica.backup_replicas for replica in message.replicas):
                self._groups.modify(*self._given(message))

    def insert(self, message: _Message) -> None:
        """Add one."""
        self._groups.insert(*self._given(message))
        self._keep(message)

    def modify(self, message: _Message) -> None:
        """Replace one as a whole."""
        self._groups.modify(*self._given(message))
        self._keep(message)

    def delete(self, message: _Message) -> None:
        """Remove one."""
        number = self._checked_number(message)
        self._groups.delete(number)
        del self._messages[number]

    @abstractmethod
    def _checked_number(self, message: _Message) -> int:
        """Return the number, or raise an error if it is out of range."""

    @property
    @abstractmethod
    def _groups(self) -> ReplicaGroups:
        """Return the engine's part of them."""

    def _clones(self, message: _Message) -> Clones:  # noqa: ARG002 - only clones have options
        """Return the options of clones, or raise INVALID_ARGUMENT."""
        return DEFAULT_CLONE_OPTIONS

    def _given(self, message: _Message) -> tuple[int, tuple[Replica, ...], Clones]:
        return self._checked_number(message), self._replicas(message), self._clones(message)

    def _keep(self, message: _Message) -> None:
        copy = type(message)()
        copy.CopyFrom(message)
        self._messages[self._number(message)] = copy

    def _number(self, message: _Message) -> int:
        return int(getattr(message, self.number_field))

    def _name(self, message: _Message) -> str:
        return f"{self.what} {self._number(message)}"

    def _replicas(self, message: _Message) -> tuple[Replica, ...]:
        """Return the replicas to make now, or raise INVALID_ARGUMENT, also if two of all replicas given are equal."""
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
