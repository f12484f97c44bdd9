"""Every P4 entity of a pipeline under its P4Info id: where Write and Read requests find their object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from p4switch.engine.engine import Engine
from p4switch.p4runtime.codec.actions import ActionCodec
from p4switch.p4runtime.codec.translation import Translations
from p4switch.p4runtime.entities.digests import Digests
from p4switch.p4runtime.entities.externs import (
    CounterArray,
    MeterArray,
    RegisterArray,
    meter_type,
    require_zero_counters,
)
from p4switch.p4runtime.entities.multicast import CloneSessions, MulticastGroups
from p4switch.p4runtime.entities.profiles import ActionProfile, ValueSet
from p4switch.p4runtime.entities.tables import Table
from p4switch.p4runtime.errors import invalid, unimplemented
from p4switch.p4runtime.proto import p4i, p4r
from p4switch.p4runtime.watch import WatchedPorts

_Object = TypeVar("_Object")
_Message = TypeVar("_Message", contravariant=True)


class Entities:
    """One pipeline's tables, counters, registers and multicast groups, read and written as entities.

    Errors are P4RuntimeError, or TableError where the engine refuses.
    """

    def __init__(self, p4info: p4i.P4Info, engine: Engine, ports: WatchedPorts) -> None:
        program = engine.program
        # A compiler may have dropped from the device config what the program never uses.
        described = {table.preamble.name for table in p4info.tables}
        dropped = described - program.tables.keys()
        unknown = {table.name for table in program.tables.values() if not table.is_call} - described
        if dropped and unknown:
            raise invalid(
                f"the P4Info has a table {min(dropped)}, the device config has {min(unknown)} instead"
            )
        # An action that a control calls, too, is there a second time, its parameters bound.
        self.translations = translations = Translations(p4info.type_info)
        by_count = sorted(program.actions.values(), key=lambda action: len(action.parameters))
        parameters = {action.name: action.parameters for action in by_count}
        actions = {
            action.preamble.id: ActionCodec(action, parameters[action.preamble.name], translations)
            for action in p4info.actions
            if action.preamble.name in parameters
        }
        profiles = {profile.preamble.id: profile for profile in p4info.action_profiles}
        self.tables = {
            table.preamble.id: Table(
                table, actions, profiles.get(table.implementation_id), ports, engine, translations
            )
            for table in p4info.tables
            if table.preamble.name in program.tables
        }
        self.counters = {
            counter.preamble.id: CounterArray(counter, engine)
            for counter in p4info.counters
            if counter.preamble.name in program.counters
        }
        self.registers = {
            register.preamble.id: RegisterArray(register, engine, p4info.type_info, translations)
            for register in p4info.registers
            if register.preamble.name in program.registers
        }
        self.meters = {
            meter.preamble.id: MeterArray(meter, engine)
            for meter in p4info.meters
            if meter.preamble.name in program.meters
        }
        self.profiles = {
            profile.preamble.id: ActionProfile(profile, actions, ports, engine)
            for profile in p4info.action_profiles
            if profile.preamble.name in program.profiles
        }
        self.value_sets = {
            info.preamble.id: ValueSet(info, engine, translations)
            for info in p4info.value_sets
            if info.preamble.name in program.value_sets
        }
        self._multicast = MulticastGroups(engine, ports)
        self._sessions = CloneSessions(engine, ports)
        self.digests = Digests(p4info, (digest.name for digest in program.digests.values()), translations)
        self.on_timeouts: Callable[[], None] | None = None  # called when an entry has been given a timeout
        for table in self.tables.values():
            table.on_timeout = self._timeout
        for meter in p4info.direct_meters:
            if metered := self.tables.get(meter.direct_table_id):
                metered.resources.meter = meter_type(meter)
        for direct in p4info.direct_counters:
            if counted := self.tables.get(direct.direct_table_id):
                counted.resources.counted = True

    def _timeout(self) -> None:
        if self.on_timeouts is not None:
            self.on_timeouts()

    def watch(self) -> None:
        """Follows a change of the ports' status."""
        for profile in self.profiles.values():
            profile.groups.watch()
        for table in self.tables.values():
            table.watch()
        self._multicast.watch()
        self._sessions.watch()

    def write(self, update: p4r.Update) -> None:
        """Carry out one update of a Write request."""
        require_zero_counters(update.entity)
        self.restore(update)

    def restore(self, update: p4r.Update) -> None:
        """Carry out an update that may also set what only the data plane changes otherwise."""
        entity = update.entity
        match entity.WhichOneof("entity"):
            case "table_entry":
                table = _lookup(self.tables, entity.table_entry.table_id, "table")
                _write(update.type, table, entity.table_entry)
            case "direct_counter_entry":
                table = _lookup(self.tables, entity.direct_counter_entry.table_entry.table_id, "table")
                _require_modify(update.type)
                table.modify_counter(entity.direct_counter_entry)
            case "counter_entry":
                _require_modify(update.type)
                _lookup(self.counters, entity.counter_entry.counter_id, "counter").modify(
                    entity.counter_entry
                )
            case "register_entry":
                _require_modify(update.type)
                _lookup(self.registers, entity.register_entry.register_id, "register").modify(
                    entity.register_entry
                )
            case "direct_meter_entry":
                table = _lookup(self.tables, entity.direct_meter_entry.table_entry.table_id, "table")
                _require_modify(update.type)
                table.modify_meter(entity.direct_meter_entry)
            case "meter_entry":
                _require_modify(update.type)
                _lookup(self.meters, entity.meter_entry.meter_id, "meter").modify(entity.meter_entry)
            case "digest_entry":
                _write(update.type, self.digests, entity.digest_entry)
            case "value_set_entry":
                _require_modify(update.type)
                value_set = _lookup(self.value_sets, entity.value_set_entry.value_set_id, "value set")
                value_set.modify(entity.value_set_entry)
            case "action_profile_member":
                member = entity.action_profile_member
                profile = _lookup(self.profiles, member.action_profile_id, "action profile")
                _write(update.type, profile.members, member)
            case "action_profile_group":
                group = entity.action_profile_group
                profile = _lookup(self.profiles, group.action_profile_id, "action profile")
                _write(update.type, profile.groups, group)
            case "packet_replication_engine_entry":
                entry = entity.packet_replication_engine_entry
                match entry.WhichOneof("type"):
                    case "multicast_group_entry":
                        _write(update.type, self._multicast, entry.multicast_group_entry)
                    case "clone_session_entry":
                        _write(update.type, self._sessions, entry.clone_session_entry)
                    case _:
                        raise invalid("the packet_replication_engine_entry has no type")
            case None:
                raise invalid("the update has no entity")
            case kind:
                raise unimplemented(f"{kind} is not supported")

    def read(self, query: p4r.Entity) -> Iterator[p4r.Entity]:
        """The entities that one entity of a Read request selects; an id of 0 selects all of its kind."""
        match query.WhichOneof("entity"):
            case "table_entry":
                for table in _select(self.tables, query.table_entry.table_id, "table"):
                    for entry in table.read(query.table_entry):
                        yield p4r.Entity(table_entry=entry)
            case "direct_counter_entry":
                wanted = query.direct_counter_entry.table_entry
                for table in _select(self.tables, wanted.table_id, "table"):
                    if wanted.table_id or table.resources.counted:
                        for direct in table.read_counters(wanted):
                            yield p4r.Entity(direct_counter_entry=direct)
            case "counter_entry":
                for counter in _select(self.counters, query.counter_entry.counter_id, "counter"):
                    for count in counter.read(query.counter_entry):
                        yield p4r.Entity(counter_entry=count)
            case "register_entry":
                for register in _select(self.registers, query.register_entry.register_id, "register"):
                    for cell in register.read(query.register_entry):
                        yield p4r.Entity(register_entry=cell)
            case "direct_meter_entry":
                wanted = query.direct_meter_entry.table_entry
                for table in _select(self.tables, wanted.table_id, "table"):
                    if wanted.table_id or table.resources.meter is not None:
                        for metered in table.read_meters(query.direct_meter_entry):
                            yield p4r.Entity(direct_meter_entry=metered)
            case "meter_entry":
                for meter in _select(self.meters, query.meter_entry.meter_id, "meter"):
                    for rates in meter.read(query.meter_entry):
                        yield p4r.Entity(meter_entry=rates)
            case "digest_entry":
                for digest in self.digests.read(query.digest_entry):
                    yield p4r.Entity(digest_entry=digest)
            case "value_set_entry":
                for value_set in _select(self.value_sets, query.value_set_entry.value_set_id, "value set"):
                    for members in value_set.read(query.value_set_entry):
                        yield p4r.Entity(value_set_entry=members)
            case "action_profile_member":
                number = query.action_profile_member.action_profile_id
                for profile in _select(self.profiles, number, "action profile"):
                    for member in profile.members.read(query.action_profile_member):
                        yield p4r.Entity(action_profile_member=member)
            case "action_profile_group":
                number = query.action_profile_group.action_profile_id
                for profile in _select(self.profiles, number, "action profile"):
                    for group in profile.groups.read(query.action_profile_group):
                        yield p4r.Entity(action_profile_group=group)
            case "packet_replication_engine_entry":
                yield from self._read_replication(query.packet_replication_engine_entry)
            case None:
                raise invalid(
                    "the request has an entity without a kind: give one, with an id of 0 to read all of it"
                )
            case kind:
                # There are none of these, so a wildcard read finds none.
                if getattr(query, kind) != type(getattr(query, kind))():
                    raise unimplemented(f"{kind} is not supported")

    def export(self) -> Iterator[p4r.Update]:
        """The updates that bring a newly loaded pipeline to what controllers have written to this one."""
        for profile in self.profiles.values():
            for member in profile.members.read(p4r.ActionProfileMember()):
                yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(action_profile_member=member))
            for group in profile.groups.read(p4r.ActionProfileGroup()):
                yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(action_profile_group=group))
        for value_set in self.value_sets.values():
            for members in value_set.read(p4r.ValueSetEntry()):
                yield p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(value_set_entry=members))
        for table in self.tables.values():
            yield from table.export()
        for meter in self.meters.values():
            yield from meter.export()
        yield from self._multicast.export()
        yield from self._sessions.export()
        for digest in self.digests.read(p4r.DigestEntry()):
            yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(digest_entry=digest))

    def _read_replication(self, query: p4r.PacketReplicationEngineEntry) -> Iterator[p4r.Entity]:
        match query.WhichOneof("type"):
            case "multicast_group_entry":
                for group in self._multicast.read(query.multicast_group_entry):
                    entry = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
                    yield p4r.Entity(packet_replication_engine_entry=entry)
            case "clone_session_entry":
                for session in self._sessions.read(query.clone_session_entry):
                    entry = p4r.PacketReplicationEngineEntry(clone_session_entry=session)
                    yield p4r.Entity(packet_replication_engine_entry=entry)
            case _:
                raise invalid("the packet_replication_engine_entry has no type")


class _Container(Protocol[_Message]):
    def insert(self, message: _Message) -> None: ...
    def modify(self, message: _Message) -> None: ...
    def delete(self, message: _Message) -> None: ...


def _write(kind: p4r.Update.Type.ValueType, container: _Container[_Message], message: _Message) -> None:
    match kind:
        case p4r.Update.INSERT:
            container.insert(message)
        case p4r.Update.MODIFY:
            container.modify(message)
        case p4r.Update.DELETE:
            container.delete(message)
        case _:
            raise invalid("the update has no type: give INSERT, MODIFY or DELETE")


def _require_modify(kind: p4r.Update.Type.ValueType) -> None:
    if kind != p4r.Update.MODIFY:
        raise invalid(
            "counters, meters, registers and value sets always exist: the update's type must be MODIFY"
        )


def _lookup(objects: Mapping[int, _Object], object_id: int, kind: str) -> _Object:
    found = objects.get(object_id)
    if found is None:
        raise invalid(f"the pipeline has no {kind} with the id {object_id:#x}")
    return found


def _select(objects: Mapping[int, _Object], object_id: int, kind: str) -> Iterable[_Object]:
    return [_lookup(objects, object_id, kind)] if object_id else objects.values()
