"""Tables and their direct counters over P4Runtime.

Everything that a table's messages refer to by id is looked up once, when the pipeline is set, so that a write
costs one pass over its message and one call of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from p4switch.engine import Engine
from p4switch.entries import (
    ActionCall,
    CounterValue,
    Entry,
    EntryAction,
    EntryKey,
    GroupReference,
    Match,
    MemberReference,
    MeterConfig,
    OneShot,
)
from p4switch.p4runtime_actions import ActionCodec
from p4switch.p4runtime_errors import denied, invalid, not_found, unimplemented
from p4switch.p4runtime_externs import decode_meter, encode_meter, refuse_color_counters
from p4switch.p4runtime_matches import PRIORITIZED_KINDS, MatchField
from p4switch.p4runtime_profiles import check_weights
from p4switch.p4runtime_proto import p4i, p4r
from p4switch.p4runtime_watch import WatchedPorts, watches

_NO_COOKIE = (0, b"")


class Table:
    """One table: its messages decoded and encoded, and the operations on its entries and default entry.

    P4Runtime specification, "TableEntry". Refusals are P4RuntimeError, or TableError from the engine.
    """

    def __init__(
        self,
        table: p4i.Table,
        actions: Mapping[int, ActionCodec],
        profile: p4i.ActionProfile | None,
        ports: WatchedPorts,
        engine: Engine,
    ) -> None:
        self.id = table.preamble.id
        self.name = table.preamble.name
        keys = engine.program.tables[self.name].keys
        if len(keys) != len(table.match_fields):
            raise invalid(
                f"table {self.name} has {len(table.match_fields)} key fields in the P4Info, "
                f"{len(keys)} in the device config"
            )
        self.fields = tuple(
            MatchField.of(field, key, self.name) for field, key in zip(table.match_fields, keys, strict=True)
        )
        self.is_const = table.is_const_table
        self._profile = profile
        self._ports = ports
        self._watching: dict[EntryKey, p4r.TableAction] = {}  # action sets, as they were written
        self.has_const_default = bool(table.const_default_action_id)
        self.has_direct_counter = False
        self._engine = engine
        if table.has_initial_entries and not table.is_const_table:
            engine.table_release(self.name, table.size)
        self._slots = {field.id: (position, field) for position, field in enumerate(self.fields)}
        self._prioritized = any(field.kind in PRIORITIZED_KINDS for field in self.fields)
        self._actions = {
            ref.id: (actions[ref.id], ref.scope) for ref in table.action_refs if ref.id in actions
        }
        self._actions_by_name = {codec.name: codec for codec, _ in self._actions.values()}
        # What the controller wants back with an entry and the engine has no use for: few entries have any.
        self._cookies: dict[EntryKey | None, tuple[int, bytes]] = {}
        self.default_is_ours = False
        self.direct_meter: p4i.MeterSpec | None = None
        self.ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        self.idle_timeouts: dict[EntryKey, int] = {}
        self.on_timeout: Callable[[], None] = lambda: None  # called when an entry is given one

    @property
    def has_direct_meter(self) -> bool:
        """Whether each entry has a meter."""
        return self.direct_meter is not None

    # Writing

    def insert(self, message: p4r.TableEntry) -> None:
        """Add an entry."""
        self._check_extras(message)
        if message.is_default_action:
            raise invalid(f"table {self.name}: the default entry always exists: MODIFY it")
        if self.is_const:
            raise self._immutable()
        if not self.fields:
            raise invalid(f"table {self.name} has no key, so only its default entry can be set, by MODIFY")
        key = self._decode_key(message)
        action = self._decode_action(message.action, default=False)
        if action is None:
            raise invalid(f"table {self.name}: an INSERT needs an action")
        self._engine.table_insert(self.name, Entry(key, action))
        if self._profile is not None:
            self._keep_watching(key, message.action)
        self._cookies.pop(key, None)
        self._write_extras(message, key)

    def modify(self, message: p4r.TableEntry) -> None:
        """Replace an entry's action and metadata, or set or (without an action) reset the default entry."""
        self._check_extras(message)
        if message.is_default_action:
            self._modify_default(message)
            return
        key = self._decode_key(message)
        present = self._present(key)
        if present.is_const and message.idle_timeout_ns:
            raise invalid(f"table {self.name}: const entries have no idle timeouts")
        action = self._decode_action(message.action, default=False)
        if action is not None:
            if present.is_const:
                raise self._immutable()
            self._engine.table_modify(self.name, Entry(key, action))
            if self._profile is not None:
                self._keep_watching(key, message.action)
        self._cookies.pop(key, None)
        self._write_extras(message, key)

    def delete(self, message: p4r.TableEntry) -> None:
        """Remove an entry."""
        self._check_flag(message)
        if message.is_default_action:
            raise invalid(f"table {self.name}: the default entry cannot be deleted, only reset by a MODIFY")
        if self.is_const:
            raise self._immutable()
        key = self._decode_key(message)
        self._engine.table_delete(self.name, key)
        self._watching.pop(key, None)
        self._cookies.pop(key, None)
        self.idle_timeouts.pop(key, None)

    def watch(self) -> None:
        """Passes over the actions of action sets whose ports are down now."""
        for key, message in self._watching.items():
            action = self._decode_action_set(message.action_profile_action_set)
            self._engine.table_modify(self.name, Entry(key, action))

    def _keep_watching(self, key: EntryKey, message: p4r.TableAction) -> None:
        self._watching.pop(key, None)
        if any(map(watches, message.action_profile_action_set.action_profile_actions)):
            self._watching[key] = copy = p4r.TableAction()
            copy.CopyFrom(message)

    def _check_flag(self, message: p4r.TableEntry) -> None:
        if message.is_const:
            raise invalid(f"table {self.name}: is_const is the program's to say: leave it unset")

    def _check_extras(self, message: p4r.TableEntry) -> None:
        self._check_flag(message)
        if message.HasField("time_since_last_hit"):
            raise invalid(f"table {self.name}: time_since_last_hit can only be read")
        if message.idle_timeout_ns and (not self.ages or message.is_default_action):
            raise invalid(f"table {self.name}: no idle timeouts here; leave idle_timeout_ns unset")
        if message.idle_timeout_ns < 0:
            raise invalid(f"table {self.name}: idle_timeout_ns {message.idle_timeout_ns} is negative")
        if message.HasField("meter_counter_data"):
            raise unimplemented(f"table {self.name}: meters do not count by colour")
        if message.HasField("meter_config") and not self.has_direct_meter:
            raise invalid(f"table {self.name} has no direct meter")
        if message.HasField("counter_data") and not self.has_direct_counter:
            raise invalid(f"table {self.name} has no direct counter")

    def _modify_default(self, message: p4r.TableEntry) -> None:
        if message.match or message.priority:
            raise invalid(f"table {self.name}: the default entry has neither match fields nor a priority")
        if message.HasField("counter_data") or message.HasField("meter_config"):
            raise unimplemented(
                f"table {self.name}: a default entry has neither counter nor meter here, as on BMv2"
            )
        if any(map(watches, message.action.action_profile_action_set.action_profile_actions)):
            raise unimplemented(f"table {self.name}: a default entry cannot watch ports")
        if self.has_const_default:
            raise denied(f"table {self.name}: the program declares its default action const")
        action = self._decode_action(message.action, default=True)
        self._engine.table_set_default(self.name, action)
        self.default_is_ours = action is not None
        self._cookies.pop(None, None)
        if action is not None:
            self._write_extras(message, None)

    def _write_extras(self, message: p4r.TableEntry, key: EntryKey | None) -> None:
        cookie = (message.controller_metadata, message.metadata)
        if cookie != _NO_COOKIE:
            self._cookies[key] = cookie
        if key is None:
            return
        if message.HasField("counter_data"):
            self._write_counter(key, message.counter_data)
        if self.has_direct_meter:
            config = self._meter(message.meter_config) if message.HasField("meter_config") else None
            self._engine.table_meter_write(self.name, key, config)
        if message.idle_timeout_ns:
            self.idle_timeouts[key] = message.idle_timeout_ns
            self.on_timeout()
        else:
            self.idle_timeouts.pop(key, None)

    # Reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """The entries that a query selects (P4Runtime specification, "Wildcard Reads" of TableEntry)."""
        if query.HasField("meter_counter_data"):
            raise unimplemented(f"table {self.name}: meters do not count by colour")
        if query.is_default_action:
            if query.HasField("time_since_last_hit"):
                raise invalid(
                    f"table {self.name}: a default entry is never idle: leave time_since_last_hit unset"
                )
            yield self._default_entry()
            return
        with_counter = query.HasField("counter_data") and self.has_direct_counter
        with_meter = query.HasField("meter_config") and self.has_direct_meter
        with_time = query.HasField("time_since_last_hit")
        if with_time and query.table_id and not self.ages:
            raise invalid(f"table {self.name} has no idle timeouts: leave time_since_last_hit unset")
        since = self.idle_times() if with_time and self.ages else {}
        for entry in self._select(query):
            message = self._encode_entry(entry)
            if with_counter:
                message.counter_data.CopyFrom(self._counter(entry.key))
            config = self._engine.table_meter(self.name, entry.key) if with_meter else None
            if config is not None:
                message.meter_config.CopyFrom(encode_meter(config))
            if entry.key in since:
                message.time_since_last_hit.elapsed_ns = since[entry.key]
            yield message

    def idle_times(self) -> dict[EntryKey, int]:
        """Nanoseconds since each entry was hit, or added."""
        now = self._engine.now()
        hits = self._engine.table_last_hits(self.name)
        return {entry.key: 1000 * max(0, now - hit) for entry, hit in hits}

    def entry_message(self, key: EntryKey) -> p4r.TableEntry:
        """What an idle-timeout notification says of an entry."""
        message = self._encode_key(key)
        message.idle_timeout_ns = self.idle_timeouts[key]
        self._add_cookie(message, key)
        return message

    def _select(self, query: p4r.TableEntry) -> Iterator[Entry]:
        """The engine's entries that a query's match, priority, action and metadata leave."""
        if query.match:
            found = self._engine.table_entry(self.name, self._decode_key(query))
            entries = [] if found is None else [found]
        else:
            entries = self._engine.table_entries(self.name)
        action_name = self._queried_action(query)
        cookie = (query.controller_metadata, query.metadata)
        for entry in entries:
            if query.priority and entry.key.priority != query.priority:
                continue
            if action_name is not None and getattr(entry.action, "name", None) != action_name:
                continue
            if cookie != _NO_COOKIE and not self._has_cookie(entry.key, cookie):
                continue
            yield entry

    def clear(self) -> None:
        """Removes the entries that the program declares and lets be changed."""
        for entry in self._engine.table_entries(self.name):
            if not entry.is_const:
                self._engine.table_delete(self.name, entry.key)

    def export(self) -> Iterator[p4r.Update]:
        """The updates that bring an empty table to the present contents."""
        for entry in self._engine.table_entries(self.name):
            if not entry.is_const:
                yield _update(p4r.Update.INSERT, self._encode_entry(entry))
        if self.default_is_ours:
            yield _update(p4r.Update.MODIFY, self._default_entry())

    # Direct counters

    def modify_counter(self, message: p4r.DirectCounterEntry) -> None:
        """Set the counter of the entry with a key; without data nothing changes."""
        self._check_counted(message.table_entry)
        key = self._present(self._decode_key(message.table_entry)).key
        if message.HasField("data"):
            self._write_counter(key, message.data)

    def read_counters(self, query: p4r.TableEntry) -> Iterator[p4r.DirectCounterEntry]:
        """The counter of the entry with the query's key (NOT_FOUND without one), or of every entry."""
        self._check_counted(query)
        entries = (
            [self._present(self._decode_key(query))] if query.match else self._engine.table_entries(self.name)
        )
        for entry in entries:
            yield p4r.DirectCounterEntry(
                table_entry=self._encode_key(entry.key), data=self._counter(entry.key)
            )

    def _check_counted(self, message: p4r.TableEntry) -> None:
        if not self.has_direct_counter:
            raise invalid(f"table {self.name} has no direct counter")
        if message.is_default_action:
            raise unimplemented(f"table {self.name}: a default entry has no counter here, as on BMv2")

    def _counter(self, key: EntryKey) -> p4r.CounterData:
        value = self._engine.table_counter(self.name, key)
        return p4r.CounterData(packet_count=value.packets, byte_count=value.bytes)

    def _write_counter(self, key: EntryKey, data: p4r.CounterData) -> None:
        value = CounterValue(packets=data.packet_count, bytes=data.byte_count)
        self._engine.table_counter_write(self.name, key, value)

    # Direct meters

    def modify_meter(self, message: p4r.DirectMeterEntry) -> None:
        """Set the meter of the entry with a key; without a config it is reset."""
        self._check_metered(message)
        key = self._present(self._decode_key(message.table_entry)).key
        config = self._meter(message.config) if message.HasField("config") else None
        self._engine.table_meter_write(self.name, key, config)

    def read_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.DirectMeterEntry]:
        """The meter of the entry with the query's key (NOT_FOUND without one), or of every entry."""
        self._check_metered(query)
        key = query.table_entry
        entries = (
            [self._present(self._decode_key(key))] if key.match else self._engine.table_entries(self.name)
        )
        for entry in entries:
            config = self._engine.table_meter(self.name, entry.key)
            message = p4r.DirectMeterEntry(table_entry=self._encode_key(entry.key))
            if config is not None:
                message.config.CopyFrom(encode_meter(config))
            yield message

    def _check_metered(self, message: p4r.DirectMeterEntry) -> None:
        if self.direct_meter is None:
            raise invalid(f"table {self.name} has no direct meter")
        refuse_color_counters(message, f"table {self.name}")
        if message.table_entry.is_default_action:
            raise unimplemented(f"table {self.name}: a default entry has no meter here, as on BMv2")

    def _meter(self, message: p4r.MeterConfig) -> MeterConfig:
        assert self.direct_meter is not None
        return decode_meter(message, self.direct_meter)

    # Messages

    def _encode_key(self, key: EntryKey) -> p4r.TableEntry:
        message = p4r.TableEntry(table_id=self.id, priority=key.priority)
        for field, match in zip(self.fields, key.match, strict=True):
            encoded = field.encode(match)
            if encoded is not None:
                message.match.append(encoded)
        return message

    def _encode_entry(self, entry: Entry) -> p4r.TableEntry:
        message = self._encode_key(entry.key)
        if entry.key in self._watching:
            message.action.CopyFrom(self._watching[entry.key])
        else:
            self._encode_action(message.action, entry.action)
        message.is_const = entry.is_const
        message.idle_timeout_ns = self.idle_timeouts.get(entry.key, 0)
        self._add_cookie(message, entry.key)
        return message

    def _default_entry(self) -> p4r.TableEntry:
        message = p4r.TableEntry(table_id=self.id, is_default_action=True, is_const=self.has_const_default)
        action = self._engine.table_default(self.name)
        if action is not None:
            self._encode_action(message.action, action)
        self._add_cookie(message, None)
        return message

    def _add_cookie(self, message: p4r.TableEntry, key: EntryKey | None) -> None:
        if self._cookies:
            message.controller_metadata, message.metadata = self._cookies.get(key, _NO_COOKIE)

    def _has_cookie(self, key: EntryKey, wanted: tuple[int, bytes]) -> bool:
        number, metadata = self._cookies.get(key, _NO_COOKIE)
        return wanted[0] in (0, number) and wanted[1] in (b"", metadata)

    def _queried_action(self, query: p4r.TableEntry) -> str | None:
        if not query.action.action.action_id:
            return None
        return self._action(query.action.action.action_id)[0].name

    def _decode_key(self, message: p4r.TableEntry) -> EntryKey:
        slots = self._slots
        given: dict[int, Match] = {}
        for field_message in message.match:
            slot = slots.get(field_message.field_id)
            if slot is None:
                raise invalid(f"table {self.name} has no key field {field_message.field_id}")
            position, field = slot
            given[position] = field.decode(field_message)
        if len(given) < len(message.match):
            raise invalid(f"table {self.name}: a key field is given more than once")
        if len(given) < len(self.fields):
            self._fill_dont_cares(given)
        key = tuple([given[position] for position in range(len(given))])
        priority = message.priority
        if self._prioritized and priority <= 0:
            raise invalid(f"table {self.name} has overlapping matches: an entry needs a priority above 0")
        if priority and not self._prioritized:
            raise invalid(f"table {self.name} has only exact and lpm matches: leave the priority unset")
        return EntryKey(key, priority)

    def _fill_dont_cares(self, given: dict[int, Match]) -> None:
        for position, field in enumerate(self.fields):
            if position not in given:
                if field.dont_care is None:
                    raise invalid(f"{field.name}: an exact match needs a value (field {field.id})")
                given[position] = field.dont_care

    def _encode_action(self, message: p4r.TableAction, action: EntryAction) -> None:
        match action:
            case MemberReference(number):
                message.action_profile_member_id = number
            case GroupReference(number):
                message.action_profile_group_id = number
            case OneShot(choices):
                for call, weight in choices:
                    packed = self._actions_by_name[call.name].encode(call)
                    message.action_profile_action_set.action_profile_actions.add(action=packed, weight=weight)
            case _:
                message.action.CopyFrom(self._actions_by_name[action.name].encode(action))

    def _decode_action(self, message: p4r.TableAction, *, default: bool) -> EntryAction | None:
        kind = message.WhichOneof("type")
        if kind is None:
            return None
        if (kind == "action") == (self._profile is not None) and not (default and kind == "action"):
            how = "directly" if self._profile is None else "by an action profile's members or groups"
            raise invalid(f"table {self.name} takes actions {how}, not by {kind}")
        match kind:
            case "action_profile_member_id":
                return MemberReference(message.action_profile_member_id)
            case "action_profile_group_id":
                return GroupReference(message.action_profile_group_id)
            case "action_profile_action_set":
                return self._decode_action_set(message.action_profile_action_set)
        return self._decode_call(message.action, default=default)

    def _decode_action_set(self, message: p4r.ActionProfileActionSet) -> OneShot:
        assert self._profile is not None
        what, items = f"table {self.name}", message.action_profile_actions
        if not items:
            raise invalid(f"{what}: an action set needs an action")
        check_weights(self._profile, [item.weight for item in items], self._profile.max_group_size, what)
        return OneShot(
            tuple(
                [
                    (self._decode_call(item.action, default=False), self._ports.weight(item, what))
                    for item in items
                ]
            )
        )

    def _decode_call(self, message: p4r.Action, *, default: bool) -> ActionCall:
        codec, scope = self._action(message.action_id)
        if scope == (p4i.ActionRef.TABLE_ONLY if default else p4i.ActionRef.DEFAULT_ONLY):
            place = "a default action" if default else "the action of an entry"
            raise denied(f"action {codec.name} cannot be {place} of table {self.name}")
        return codec.decode(message)

    def _action(self, action_id: int) -> tuple[ActionCodec, int]:
        found = self._actions.get(action_id)
        if found is None:
            names = ", ".join(f"{codec.name} ({codec.id})" for codec, _ in self._actions.values())
            raise invalid(f"table {self.name} has no action {action_id}, only {names}")
        return found

    def _present(self, key: EntryKey) -> Entry:
        entry = self._engine.table_entry(self.name, key)
        if entry is None:
            raise not_found(f"table {self.name} has no such entry")
        return entry

    def _immutable(self) -> Exception:
        return denied(f"table {self.name}: the program declares these entries const")


def _update(kind: p4r.Update.Type.ValueType, message: p4r.TableEntry) -> p4r.Update:
    return p4r.Update(type=kind, entity=p4r.Entity(table_entry=message))
