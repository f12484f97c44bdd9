"""The interface between the service and each kind of P4Runtime entity.

A new kind needs a module here with its class, and a line in registry.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from operator import attrgetter
from typing import ClassVar, Generic, Self, TypeVar

from google.protobuf.message import Message

from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r

_Message = TypeVar("_Message", bound=Message)


_INSERT, _MODIFY, _DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class EntityKind(ABC, Generic[_Message]):
    """All entities of one kind in a pipeline, as messages.

    `field` is the kind's field in p4.v1.Entity, or in the union inside p4.v1.Entity. `id_field` is the path in the
    message to the P4Info id of the entity's object; "" if it belongs to none. Errors are raised as P4RuntimeError, or
    as TableError by the engine.
    """

    field: ClassVar[str]
    id_field: ClassVar[str] = ""

    @abstractmethod
    def __init__(self, objects: PipelineObjects) -> None:
        """Read P4Info's description, and raise INVALID_ARGUMENT if the program differs from it."""

    def p4_id(self, message: _Message) -> int:
        """Return the P4Info id of an entity's object, which roles refer to; 0 if it has none."""
        return int(attrgetter(self.id_field)(message)) if self.id_field else 0

    @abstractmethod
    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """Carry out an update."""

    @abstractmethod
    def read(self, query: _Message) -> Iterator[_Message]:
        """Yield the entities that a query selects. An id of 0 selects all."""

    def check(self, message: _Message) -> None:
        """Reject values that a rollback may restore, but a controller may not write."""

    def present(self, message: _Message) -> Iterator[_Message]:
        """Yield an entity as a rollback would restore it."""
        return self.read(message)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, _Message]]:
        """Yield the updates that repeat in a newly loaded pipeline what controllers have written to this one."""
        return iter(())

    def make_room(self, previous: Self) -> None:
        """Remove what conflicts with the entities of the previous pipeline, before they are written."""

    def follow_ports(self) -> None:
        """Update entities after a change of the ports' status."""


class DynamicKind(EntityKind[_Message]):
    """Entities that controllers insert and delete."""

    @abstractmethod
    def insert(self, message: _Message) -> None:
        """Add an entity."""

    @abstractmethod
    def modify(self, message: _Message) -> None:
        """Change an entity."""

    @abstractmethod
    def delete(self, message: _Message) -> None:
        """Remove an entity."""

    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """Carry out an INSERT, MODIFY or DELETE."""
        if kind == _INSERT:
            self.insert(message)
        elif kind == _MODIFY:
            self.modify(message)
        elif kind == _DELETE:
            self.delete(message)
        else:
            raise invalid("the update has no type: give INSERT, MODIFY or DELETE")


class StaticKind(EntityKind[_Message]):
    """Entities that always exist, because the program declares them."""

    @abstractmethod
    def modify(self, message: _Message) -> None:
        """Change one entity, or all that a message without an index selects."""

    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """Carry out a MODIFY."""
        if kind != p4r.Update.MODIFY:
            raise invalid(
                "counters, meters, registers and value sets always exist: the update's type must be MODIFY"
            )
        self.modify(message)
