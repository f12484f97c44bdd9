"""Table entries and default entries (P4Runtime specification, "TableEntry" and "Direct Resources")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Self

from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryAction,
    EntryKey,
    GroupReference,
    MemberReference,
)
from fanin.p4switch.p4runtime.codec.counters import decode_counter, encode_counter
from fanin.p4switch.p4runtime.codec.meters import (
    decode_meter,
    decode_meter_counters,
    encode_meter,
    encode_meter_counters,
    require_zero,
)
from fanin.p4switch.p4runtime.codec.tables import P4InfoTable
from fanin.p4switch.p4runtime.codec.watch import watches
from fanin.p4switch.p4runtime.constraints import Constraints
from fanin.p4switch.p4runtime.entities.kind import DynamicKind
from fanin.p4switch.p4runtime.errors import P4RuntimeError, denied, invalid
from fanin.p4switch.p4runtime.objects import ById, PipelineObjects
from fanin.p4switch.p4runtime.proto import p4i, p4r

_NO_COOKIE = (0, b"")


class _WrittenTable:
    """Table with the data of its entries that the engine does not need. Few entries have any.

    `cookies` are the controllers' metadata, `sets` the action sets as they were written, `timeouts` are in nanoseconds.
    """

    def __init__(self, table: P4InfoTable) -> None:
        self.table = table
        self.cookies: dict[EntryKey | None, tuple[int, bytes]] = {}
        self.sets: dict[EntryKey | None, p4r.TableAction] = {}
        self.timeouts: dict[EntryKey, int] = {}
        self.default_is_written = False

    @property
    def ages(self) -> bool:
        return self.table.info.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL

    @property
    def has_const_default(self) -> bool:
        return bool(self.table.info.const_default_action_id)

    def keep_set(self, key: EntryKey | None, message: p4r.TableAction) -> None:
        self.sets.pop(key, None)
        if message.WhichOneof("type") == "action_profile_action_set":
            self.sets[key] = copy = p4r.TableAction()
            copy.CopyFrom(message)

    def keep_cookie(self, key: EntryKey | None, message: p4r.TableEntry) -> None:
        self.cookies.pop(key, None)
        cookie = (message.controller_metadata, message.metadata)
        if cookie != _NO_COOKIE:
            self.cookies[key] = cookie

    # Messages

    def encode(self, entry: Entry) -> p4r.TableEntry:
        message = self.encode_key(entry.key)
        self._encode_action(message.action, entry.key, entry.action)
        message.is_const = entry.is_const
        message.idle_timeout_ns = self.timeouts.get(entry.key, 0)
        return message

    def encode_default(self) -> p4r.TableEntry:
        message = self.encode_key(None)
        message.is_const = self.has_const_default
        action = self.table.installed.default()
        if action is not None:
            self._encode_action(message.action, None, action)
        return message

    def encode_key(self, key: EntryKey | None) -> p4r.TableEntry:
        """Encode a key with its cookie."""
        message = self.table.encode_key(key)
        if self.cookies:
            message.controller_metadata, message.metadata = self.cookies.get(key, _NO_COOKIE)
        return message

    def _encode_action(self, message: p4r.TableAction, key: EntryKey | None, action: EntryAction) -> None:
        match action:
            case MemberReference(number):
                message.action_profile_member_id = number
            case GroupReference(number):
                message.action_profile_group_id = number
            case ActionCall():
                message.action.CopyFrom(self.table.encode_call(action))
            case _:
                message.CopyFrom(self.sets[key])

    def encode_resources(self, key: EntryKey | None, query: p4r.TableEntry, message: p4r.TableEntry) -> None:
        """Add to an entry's message the resources that the query contains."""
        installed = self.table.installed
        if query.HasField("counter_data") and self.table.is_counted:
            message.counter_data.CopyFrom(encode_counter(installed.counter(key)))
        if self.table.meter is not None:
            config = installed.meter_config(key) if query.HasField("meter_config") else None
            if config is not None:
                message.meter_config.CopyFrom(encode_meter(config))
            if query.HasField("meter_counter_data"):
                message.meter_counter_data.CopyFrom(encode_meter_counters(installed.meter_counters(key)))


class TableEntries(DynamicKind[p4r.TableEntry]):
    """Entries of all tables."""

    field = "table_entry"
    id_field = "table_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._wakeup = objects.wakeup
        self._constraints: Constraints | None = None if objects.constraints.is_empty else objects.constraints
        self._tables = ById(
            "table", ((table.info.preamble, _WrittenTable(table)) for table in objects.tables.values())
        )
        for table in objects.tables.values():
            if table.info.has_initial_entries and not table.info.is_const_table:
                table.installed.release(table.info.size)

    # Writing

    def check(self, message: p4r.TableEntry) -> None:
        """Check that counters by colour are cleared, which is all that a write can do."""
        if message.HasField("meter_counter_data"):
            require_zero(message.meter_counter_data)

    def insert(self, message: p4r.TableEntry) -> None:
        """Add an entry."""
        written = self._tables.find(message.table_id)
        table = written.table
        _check_fields(written, message)
        if message.is_default_action:
            raise invalid(f"table {table.name}: the default entry always exists: MODIFY it")
        if table.info.is_const_table:
            raise _immutable(table)
        if not table.installed.table.keys:
            raise invalid(f"table {table.name} has no key, so only its default entry can be set, by MODIFY")
        key = table.decode_key(message)
        action = table.decode_action(message.action, default=False)
        if action is None:
            raise invalid(f"table {table.name}: an INSERT needs an action")
        entry = Entry(key, action)
        if self._constraints is not None:
            self._constraints.check_entry(table.id, key, action)
        table.insert(entry)
        if self._constraints is not None:
            self._constraints.added(table.id, entry)
        self._keep(written, key, message)

    def modify(self, message: p4r.TableEntry) -> None:
        """Replace an entry's action and metadata. Set the default entry, or reset it if no action is given."""
        written = self._tables.find(message.table_id)
        table = written.table
        _check_fields(written, message)
        if message.is_default_action:
            _modify_default(written, message, self._constraints)
            return
        key = table.decode_key(message)
        present = table.present(key)
        if present.is_const and message.idle_timeout_ns:
            raise invalid(f"table {table.name}: const entries have no idle timeouts")
        action = table.decode_action(message.action, default=False)
        if action is not None:
            if present.is_const:
                raise _immutable(table)
            if self._constraints is not None:
                self._constraints.check_entry(table.id, key, action)
            table.installed.modify(Entry(key, action))
            if self._constraints is not None:
                self._constraints.removed(table.id, present)
                self._constraints.added(table.id, Entry(key, action))
        self._keep(written, key, message)

    def delete(self, message: p4r.TableEntry) -> None:
        """Remove an entry."""
        written = self._tables.find(message.table_id)
        table = written.table
        _check_flag(table, message)
        if message.is_default_action:
            raise invalid(f"table {table.name}: the default entry cannot be deleted, only reset by a MODIFY")
        if table.info.is_const_table:
            raise _immutable(table)
        key = table.decode_key(message)
        present = table.present(key)
        if present.is_const:
            raise _immutable(table)
        if self._constraints is not None:
            self._constraints.check_removal(table.id, key)
        table.installed.delete(key)
        if self._constraints is not None:
            self._constraints.removed(table.id, present)
        for kept in (written.sets, written.cookies, written.timeouts):
            kept.pop(key, None)

    def _keep(self, written: _WrittenTable, key: EntryKey, message: p4r.TableEntry) -> None:
        """Store the parts of an entry besides key and action. Without an action, the present action set is kept."""
        if written.table.profile is not None and message.action.WhichOneof("type") is not None:
            written.keep_set(key, message.action)
        written.keep_cookie(key, message)
        _write_resources(written.table, key, message)
        if message.idle_timeout_ns:
            written.timeouts[key] = message.idle_timeout_ns
            self._wakeup.set()
        else:
            written.timeouts.pop(key, None)

    def follow_ports(self) -> None:
        """Skip the actions of action sets whose ports are down now."""
        for written in self._tables.values():
            for key, message in written.sets.items():
                if any(map(watches, message.action_profile_action_set.action_profile_actions)):
                    action = written.table.decode_action_set(message.action_profile_action_set)
                    if key is None:
                        written.table.installed.set_default(action)
                    else:
                        written.table.installed.modify(Entry(key, action))

    # Reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """Yield the entries that a query selects (P4Runtime specification, "Wildcard Reads" of TableEntry)."""
        for _, written in self._tables.select(query.table_id):
            if query.is_default_action:
                yield _read_default(written, query)
            else:
                yield from _read_entries(written, query)

    def present(self, message: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """Yield an entry with all its counters, and without an action if it is the program's default one."""
        written = self._tables.find(message.table_id)
        query = p4r.TableEntry()
        query.CopyFrom(message)
        query.ClearField("action")
        query.controller_metadata, query.metadata, query.idle_timeout_ns = 0, b"", 0
        if written.table.is_counted:
            query.counter_data.SetInParent()
        if written.table.meter is not None:
            query.meter_config.SetInParent()
            query.meter_counter_data.SetInParent()
        for found in self.read(query):
            found.is_const = False
            if found.is_default_action and not written.default_is_written:
                found.ClearField("action")
            yield found

    # Taking over from another pipeline

    def make_room(self, previous: Self) -> None:
        """Remove the program's entries that can be changed, in the tables whose entries are taken over."""
        for number in self._tables.keys() & previous._tables.keys():
            if any(not entry.is_const for entry in previous._tables[number].table.installed.entries()):
                self._tables[number].table.require_same_key(previous._tables[number].table)
            installed = self._tables[number].table.installed
            for entry in installed.entries():
                if not entry.is_const:
                    installed.delete(entry.key)
                    if self._constraints is not None:
                        self._constraints.removed(number, entry)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.TableEntry]]:
        """Yield all entries that controllers have written, with the rates of their meters; default ones as written."""
        query = p4r.TableEntry(meter_config=p4r.MeterConfig())
        for written in self._tables.values():
            for entry in written.table.installed.entries():
                if not entry.is_const:
                    message = written.encode(entry)
                    written.encode_resources(entry.key, query, message)
                    yield p4r.Update.INSERT, message
            if written.default_is_written:
                yield p4r.Update.MODIFY, written.encode_default()

    # Idle entries

    def timeouts(self) -> Mapping[int, Mapping[EntryKey, int]]:
        """Return the timeouts of entries in nanoseconds, by table, for tables that have some."""
        return {number: dict(w.timeouts) for number, w in self._tables.items() if w.timeouts}

    def idle_times(self, table_id: int) -> dict[EntryKey, int]:
        """Return the nanoseconds since each entry of a table was hit or added."""
        return self._tables[table_id].table.installed.idle_times()

    def idle_entry(self, table_id: int, key: EntryKey) -> p4r.TableEntry:
        """Return the message of an entry for an idle-timeout notification."""
        written = self._tables[table_id]
        message = written.encode_key(key)
        message.idle_timeout_ns = written.timeouts[key]
        return message


def _check_flag(table: P4InfoTable, message: p4r.TableEntry) -> None:
    if message.is_const:
        raise invalid(f"table {table.name}: only the program makes entries const: leave is_const unset")


def _check_fields(written: _WrittenTable, message: p4r.TableEntry) -> None:
    """Reject an entry with fields that the table does not have, or with invalid counter or meter values."""
    table = written.table
    _check_flag(table, message)
    if message.HasField("time_since_last_hit"):
        raise invalid(f"table {table.name}: time_since_last_hit can only be read")
    if message.idle_timeout_ns and (not written.ages or message.is_default_action):
        raise invalid(f"table {table.name}: it has no idle timeouts: leave idle_timeout_ns unset")
    if message.idle_timeout_ns < 0:
        raise invalid(f"table {table.name}: idle_timeout_ns {message.idle_timeout_ns} is negative")
    if message.HasField("counter_data"):
        table.require_counter()
        decode_counter(message.counter_data)
    if message.HasField("meter_config"):
        decode_meter(message.meter_config, table.require_meter())
    if message.HasField("meter_counter_data"):
        table.require_meter()
        decode_meter_counters(message.meter_counter_data)


def _write_resources(table: P4InfoTable, key: EntryKey | None, message: p4r.TableEntry) -> None:
    """Write an entry's counter and meter. A missing config resets the meter, missing counters are kept."""
    if message.HasField("counter_data"):
        table.installed.write_counter(key, decode_counter(message.counter_data))
    if table.meter is not None:
        config = decode_meter(message.meter_config, table.meter) if message.HasField("meter_config") else None
        table.installed.configure_meter(key, config)
        if message.HasField("meter_counter_data"):
            table.installed.set_meter_counters(key, decode_meter_counters(message.meter_counter_data))


def _modify_default(written: _WrittenTable, message: p4r.TableEntry, constraints: Constraints | None) -> None:
    table = written.table
    table.key_of(message)
    if table.profile is not None and message.action.WhichOneof("type") is not None:
        raise denied(
            f"table {table.name} has an action profile: its default action is const NoAction (P4Runtime "
            'specification, "Default Entry")'
        )
    if written.has_const_default:
        raise denied(f"table {table.name}: the program declares its default action const")
    action = table.decode_action(message.action, default=True)
    if constraints is not None:
        constraints.check_entry(table.id, None, action)
    table.installed.set_default(action)
    written.keep_set(None, message.action)
    written.default_is_written = action is not None
    if action is not None:
        written.keep_cookie(None, message)
    else:
        written.cookies.pop(None, None)
    _write_resources(table, None, message)


def _read_default(written: _WrittenTable, query: p4r.TableEntry) -> p4r.TableEntry:
    if query.HasField("time_since_last_hit"):
        raise invalid(
            f"table {written.table.name}: a default entry is never idle: leave time_since_last_hit unset"
        )
    message = written.encode_default()
    written.encode_resources(None, query, message)
    return message


def _read_entries(written: _WrittenTable, query: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
    with_time = query.HasField("time_since_last_hit")
    if with_time and query.table_id and not written.ages:
        raise invalid(f"table {written.table.name} has no idle timeouts: leave time_since_last_hit unset")
    since = written.table.installed.idle_times() if with_time and written.ages else {}
    for entry in _selected(written, query):
        message = written.encode(entry)
        written.encode_resources(entry.key, query, message)
        if entry.key in since:
            message.time_since_last_hit.elapsed_ns = since[entry.key]
        yield message


def _selected(written: _WrittenTable, query: p4r.TableEntry) -> Iterator[Entry]:
    """Yield the engine's entries that a query's match, priority, action and metadata select."""
    table = written.table
    if not query.match:
        entries = table.installed.entries()
    elif query.priority or not table.is_prioritized:
        found = table.installed.entry(table.decode_key(query))
        entries = [] if found is None else [found]
    else:  # of any priority
        match = table.encode_match(table.decode_match(query))
        entries = [e for e in table.installed.entries() if table.encode_match(e.key.match) == match]
    action_id = query.action.action.action_id
    action_name = table.action_name(action_id) if action_id else None
    cookie = (query.controller_metadata, query.metadata)
    for entry in entries:
        if query.priority and entry.key.priority != query.priority:
            continue
        if action_name is not None and getattr(entry.action, "name", None) != action_name:
            continue
        if cookie != _NO_COOKIE:
            number, metadata = written.cookies.get(entry.key, _NO_COOKIE)
            if cookie[0] not in (0, number) or cookie[1] not in (b"", metadata):
                continue
        yield entry


def _immutable(table: P4InfoTable) -> P4RuntimeError:
    entries = "these entries" if table.info.is_const_table else "this entry"
    return denied(f"table {table.name}: the program declares {entries} const")
