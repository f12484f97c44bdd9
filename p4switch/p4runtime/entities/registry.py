"""All kinds of P4Runtime entities, and the entities of one pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from fanin.p4constraints.annotations import AnnotationError, role
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import TableError
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.entities.action_profile_groups import ActionProfileGroups
from fanin.p4switch.p4runtime.entities.action_profile_members import ActionProfileMembers
from fanin.p4switch.p4runtime.entities.clone_sessions import CloneSessions
from fanin.p4switch.p4runtime.entities.counters import Counters
from fanin.p4switch.p4runtime.entities.digests import Digests
from fanin.p4switch.p4runtime.entities.direct_counters import DirectCounters
from fanin.p4switch.p4runtime.entities.direct_meters import DirectMeters
from fanin.p4switch.p4runtime.entities.kind import EntityKind
from fanin.p4switch.p4runtime.entities.meters import Meters
from fanin.p4switch.p4runtime.entities.multicast_groups import MulticastGroups
from fanin.p4switch.p4runtime.entities.registers import Registers
from fanin.p4switch.p4runtime.entities.table_entries import TableEntries
from fanin.p4switch.p4runtime.entities.value_sets import ValueSets
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid, unimplemented
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4i, p4r
from fanin.p4switch.p4runtime.roles import RoleAccess

KINDS: tuple[type[EntityKind[Any]], ...] = (
    ActionProfileMembers,
    ActionProfileGroups,
    ValueSets,
    TableEntries,
    DirectCounters,
    DirectMeters,
    Counters,
    Registers,
    Meters,
    MulticastGroups,
    CloneSessions,
    Digests,
)
"""Ordered so that entities come after those that they refer to."""

_REPLICATION = "packet_replication_engine_entry"  # the entity that is itself a union

_Kind = TypeVar("_Kind", bound=EntityKind[Any])


class Entities:
    """Entities of one pipeline.

    `translations` encodes the values of its types, and `wakeup` wakes the thread that watches the pipeline. Errors are
    raised as P4RuntimeError, or as TableError by the engine.
    """

    def __init__(self, p4info: p4i.P4Info, engine: Engine, ports: WatchedPorts) -> None:
        objects = PipelineObjects(p4info, engine, ports)
        self.translations = objects.translations
        self.wakeup = objects.wakeup
        self._kinds = {kind.field: kind(objects) for kind in KINDS}
        self._constraints = objects.constraints
        self._roles = _roles(p4info)

    def of(self, kind: type[_Kind]) -> _Kind:
        """Return the entities of one kind."""
        return cast(_Kind, self._kinds[kind.field])

    def allows(self, access: RoleAccess, entity: p4r.Entity) -> bool:
        """Return whether a role may access an entity.

        Multicast groups and clone sessions have no ids to configure, so only a role with full access may.
        """
        if access.is_full and not (access.name and self._roles):
            return True
        field, message = _content(entity)
        if field not in self._kinds:
            return access.is_full  # it is refused elsewhere
        number = self._kinds[field].p4_id(message)
        if access.name and self._roles.get(number, access.name) != access.name:
            return False
        return access.is_full or access.names(number)

    def write(self, update: p4r.Update) -> None:
        """Carry out one update of a Write request."""
        kind, message = self._find(update.entity)
        kind.check(message)
        kind.write(update.type, message)

    def restore(self, update: p4r.Update) -> None:
        """Carry out an update that may also set values which otherwise only the data plane changes."""
        kind, message = self._find(update.entity)
        kind.write(update.type, message)

    def undoing(self, update: p4r.Update) -> list[p4r.Update]:
        """Return the updates that would undo an update; empty if it will be rejected anyway."""
        if update.type == p4r.Update.INSERT:
            return [p4r.Update(type=p4r.Update.DELETE, entity=update.entity)]
        back = p4r.Update.INSERT if update.type == p4r.Update.DELETE else p4r.Update.MODIFY
        try:
            kind, message = self._find(update.entity)
            return [
                p4r.Update(type=back, entity=_entity(kind.field, found)) for found in kind.present(message)
            ]
        except (P4RuntimeError, TableError):
            return []

    def read(self, query: p4r.Entity) -> Iterator[p4r.Entity]:
        """Yield the entities that one entity of a Read request selects. An id of 0 selects all of its kind."""
        field, message = _content(query)
        if field in self._kinds:
            for found in self._kinds[field].read(message):
                yield _entity(field, found)
        elif not field:
            raise invalid(
                "the request has an entity without a kind: give one, with an id of 0 to read all of it"
            )
        elif message != type(message)():  # there are none of these, so a wildcard read finds none
            raise unimplemented(f"{field} is not supported")

    def take_over(self, previous: Entities) -> None:
        """Repeat in a newly loaded pipeline what controllers have written to the previous one.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if some of it does not fit this pipeline.
        """
        for field, kind in self._kinds.items():
            kind.make_room(previous._kinds[field])
        try:
            with self._constraints.references_later():
                for field, kind in previous._kinds.items():
                    for update_type, message in kind.export():
                        self.write(p4r.Update(type=update_type, entity=_entity(field, message)))
        except (P4RuntimeError, TableError) as error:
            raise invalid(f"the forwarding state cannot be kept: {error}") from error

    def follow_ports(self) -> None:
        """Update entities after a change of the ports' status."""
        for kind in self._kinds.values():
            kind.follow_ports()

    def _find(self, entity: p4r.Entity) -> tuple[EntityKind[Any], Message]:
        field, message = _content(entity)
        if not field:
            raise invalid("the update has no entity")
        if field not in self._kinds:
            raise unimplemented(f"{field} is not supported")
        return self._kinds[field], message


def _roles(p4info: p4i.P4Info) -> dict[int, str]:
    """Return the role of each object that `@p4runtime_role` gives one; an action profile has that of its tables."""
    described = (*p4info.tables, *p4info.counters, *p4info.meters, *p4info.registers)
    found: dict[int, str] = {}
    for each in (*described, *p4info.action_profiles, *p4info.digests, *p4info.value_sets):
        try:
            if name := role(each.preamble.annotations):
                found[each.preamble.id] = name
        except AnnotationError as error:
            raise invalid(f"{each.preamble.name}: {error}") from None
    for table in p4info.tables:
        if table.implementation_id and table.preamble.id in found:
            found.setdefault(table.implementation_id, found[table.preamble.id])
    return found


def _content(entity: p4r.Entity) -> tuple[str, Message]:
    """Return the kind of an entity and its message; the kind is "" if the entity is empty."""
    field = entity.WhichOneof("entity")
    if field is None:
        return "", entity
    if field != _REPLICATION:
        return field, getattr(entity, field)
    inner = entity.packet_replication_engine_entry.WhichOneof("type")
    if inner is None:
        raise invalid(f"the {_REPLICATION} has no type")
    return inner, getattr(entity.packet_replication_engine_entry, inner)


def _entity(field: str, message: Message) -> p4r.Entity:
    if field in p4r.Entity.DESCRIPTOR.fields_by_name:
        return p4r.Entity(**{field: message})
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(**{field: message}))
