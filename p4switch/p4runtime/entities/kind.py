"""What the service needs of every kind of P4Runtime entity.

A new kind is a module here with a class of its own, and a line in registry.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Generic, Self, TypeVar

from google.protobuf.message import Message

from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r

_Message = TypeVar("_Message", bound=Message)
_Object = TypeVar("_Object")


class EntityKind(ABC, Generic[_Message]):
    """All entities of one kind in a pipeline, as messages.

    `field` is theirs in p4.v1.Entity, or in the message of p4.v1.Entity that is a union itself. Errors are
    P4RuntimeError, or TableError where the engine refuses.
    """

    field: ClassVar[str]

    @abstractmethod
    def __init__(self, objects: PipelineObjects) -> None:
        """What P4Info says of them; INVALID_ARGUMENT if the program says otherwise."""

    @abstractmethod
    def p4_id(self, message: _Message) -> int:
        """The P4Info id of the object that an entity belongs to, which roles name; 0: it has none."""

    @abstractmethod
    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """Carries out an update."""

    @abstractmethod
    def read(self, query: _Message) -> Iterator[_Message]:
        """The entities that a query selects; an id of 0 selects all."""

    def check(self, message: _Message) -> None:
        """Refuses what an update can only bring back, not a controller write."""

    def present(self, message: _Message) -> Iterator[_Message]:
        """What an entity is now, as it would be written: what a rollback brings back."""
        return self.read(message)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, _Message]]:
        """The updates that bring a newly loaded pipeline to what controllers have written to this one."""
        return iter(())

    def make_room(self, previous: Self) -> None:
        """Removes what is in the way of what the pipeline before this one exports; nothing has been written yet."""

    def follow_ports(self) -> None:
        """Follows a change of the ports' status."""


class DynamicKind(EntityKind[_Message]):
    """Entities that controllers insert and delete."""

    @abstractmethod
    def insert(self, message: _Message) -> None:
        """Adds one."""

    @abstractmethod
    def modify(self, message: _Message) -> None:
        """Changes one."""

    @abstractmethod
    def delete(self, message: _Message) -> None:
        """Removes one."""

    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """INSERT, MODIFY or DELETE."""
        match kind:
            case p4r.Update.INSERT:
                self.insert(message)
            case p4r.Update.MODIFY:
                self.modify(message)
            case p4r.Update.DELETE:
                self.delete(message)
            case _:
                raise invalid("the update has no type: give INSERT, MODIFY or DELETE")


class StaticKind(EntityKind[_Message]):
    """Entities that are always there, as the program has them."""

    @abstractmethod
    def modify(self, message: _Message) -> None:
        """Changes one, or all that a message without an index means."""

    def write(self, kind: p4r.Update.Type.ValueType, message: _Message) -> None:
        """MODIFY."""
        if kind != p4r.Update.MODIFY:
            raise invalid(
                "counters, meters, registers and value sets always exist: the update's type must be MODIFY"
            )
        self.modify(message)


def lookup(objects: Mapping[int, _Object], object_id: int, what: str) -> _Object:
    """The object of that P4Info id.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if there is none.
    """
    found = objects.get(object_id)
    if found is None:
        raise invalid(f"the pipeline has no {what} with the id {object_id:#x}")
    return found


def select(objects: Mapping[int, _Object], object_id: int, what: str) -> Iterable[tuple[int, _Object]]:
    """The object of that P4Info id, with it, or all where it is 0.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if there is none.
    """
    return [(object_id, lookup(objects, object_id, what))] if object_id else objects.items()
