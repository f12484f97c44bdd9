"""Tables over P4Runtime.

Everything that a table's messages refer to by id is looked up once, when the pipeline is set, so that a write
costs one pass over its message and one call of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from p4switch.engine.engine import Engine
from p4switch.engine.entries import (
    ActionCall,
    Entry,
    EntryAction,
    EntryKey,
    GroupReference,
    Match,
    MemberReference,
    OneShot,
)
from p4switch.p4runtime.codec.actions import ActionCodec
from p4switch.p4runtime.codec.matches import PRIORITIZED_KINDS, MatchField
from p4switch.p4runtime.codec.translation import Translations
from p4switch.p4runtime.entities.direct import DirectResources
from p4switch.p4runtime.entities.profiles import check_weights
from p4switch.p4runtime.errors import denied, invalid, not_found
from p4switch.p4runtime.proto import p4i, p4r
from p4switch.p4runtime.watch import WatchedPorts, watches

_NO_COOKIE = (0, b"")
_BY_MEMBERS = {
    p4r.ActionProfileActionSet.SUM_OF_WEIGHTS: False,
    p4r.ActionProfileActionSet.SUM_OF_MEMBERS: True,
}


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
        translations: Translations,
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
            MatchField.of(field, key, self.name, translations)
            for field, key in zip(table.match_fields, keys, strict=True)
        )
        self.is_const = table.is_const_table
        self._profile = profile
        self._ports = ports
        self._sets: dict[EntryKey | None, p4r.TableAction] = {}  # action sets, as they were written
        self.has_const_default = bool(table.const_default_action_id)
        self.resources = DirectResources(self.name, engine)
        self._engine = engine
        if table.has_initial_entries and not table.is_const_table:
            engine.table(self.name).release(table.size)
        self._slots = {field.id: (position, field) for position, field in enumerate(self.fields)}
        self._prioritized = any(field.kind in PRIORITIZED_KINDS for field in self.fields)
        self._actions = {
            ref.id: (actions[ref.id], ref.scope) for ref in table.action_refs if ref.id in actions
        }
        self._actions_by_name = {codec.name: codec for codec, _ in self._actions.values()}
        # What the controller wants back with an entry and the engine has no use for: few entries have any.
        self._cookies: dict[EntryKey | None, tuple[int, bytes]] = {}
        self.default_is_ours = False
        self.ages = table.idle_timeout_behavior == p4i.Table.NOTIFY_CONTROL
        self.idle_timeouts: dict[EntryKey, int] = {}
        self.on_timeout: Callable[[], None] = lambda: None  # called when an entry is given one

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
        self._engine.table(self.name).insert(Entry(key, action))
        if self._profile is not None:
            self._keep_set(key, message.action)
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
            self._engine.table(self.name).modify(Entry(key, action))
            if self._profile is not None:
                self._keep_set(key, message.action)
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
        self._engine.table(self.name).delete(key)
        self._sets.pop(key, None)
        self._cookies.pop(key, None)
        self.idle_timeouts.pop(key, None)

    def watch(self) -> None:
        """Passes over the actions of action sets whose ports are down now."""
        for key, message in self._sets.items():
            if any(map(watches, message.action_profile_action_set.action_profile_actions)):
                action = self._decode_action_set(message.action_profile_action_set)
                if key is None:
                    self._engine.table(self.name).set_default(action)
                else:
                    self._engine.table(self.name).modify(Entry(key, action))

    def _keep_set(self, key: EntryKey | None, message: p4r.TableAction) -> None:
        self._sets.pop(key, None)
        if message.WhichOneof("type") == "action_profile_action_set":
            self._sets[key] = copy = p4r.TableAction()
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
        self.resources.check(message)

    def _modify_default(self, message: p4r.TableEntry) -> None:
        self._key_of(message)
        if self.has_const_default:
            raise denied(f"table {self.name}: the program declares its default action const")
        action = self._decode_action(message.action, default=True)
        self._engine.table(self.name).set_default(action)
        self._keep_set(None, message.action)
        self.default_is_ours = action is not None
        self._cookies.pop(None, None)
        if action is not None:
            self._write_cookie(message, None)
        self.resources.write(None, message)

    def _write_cookie(self, message: p4r.TableEntry, key: EntryKey | None) -> None:
        cookie = (message.controller_metadata, message.metadata)
        if cookie != _NO_COOKIE:
            self._cookies[key] = cookie

    def _write_extras(self, message: p4r.TableEntry, key: EntryKey) -> None:
        self._write_cookie(message, key)
        self.resources.write(key, message)
        if message.idle_timeout_ns:
            self.idle_timeouts[key] = message.idle_timeout_ns
            self.on_timeout()
        else:
            self.idle_timeouts.pop(key, None)

    # Reading

    def read(self, query: p4r.TableEntry) -> Iterator[p4r.TableEntry]:
        """The entries that a query selects (P4Runtime specification, "Wildcard Reads" of TableEntry)."""
        if query.is_default_action:
            if query.HasField("time_since_last_hit"):
                raise invalid(
                    f"table {self.name}: a default entry is never idle: leave time_since_last_hit unset"
                )
            message = self._default_entry()
            self.resources.read(None, query, message)
            yield message
            return
        with_time = query.HasField("time_since_last_hit")
        if with_time and query.table_id and not self.ages:
            raise invalid(f"table {self.name} has no idle timeouts: leave time_since_last_hit unset")
        since = self.idle_times() if with_time and self.ages else {}
        for entry in self._select(query):
            message = self._encode_entry(entry)
            self.resources.read(entry.key, query, message)
            if entry.key in since:
                message.time_since_last_hit.elapsed_ns = since[entry.key]
            yield message

    def idle_times(self) -> dict[EntryKey, int]:
        """Nanoseconds since each entry was hit, or added."""
        now = self._engine.now()
        hits = self._engine.table(self.name).last_hits()
        return {entry.key: 1000 * max(0, now - hit) for entry, hit in hits}

    def entry_message(self, key: EntryKey) -> p4r.TableEntry:
        """What an idle-timeout notification says of an entry."""
        message = self._encode_key(key)
        message.idle_timeout_ns = self.idle_timeouts[key]
        self._add_cookie(message, key)
        return message

    def _select(self, query: p4r.TableEntry) -> Iterator[Entry]:
        """The engine's entries that a query's match, priority, action and metadata leave."""
        if not query.match:
            entries = self._engine.table(self.name).entries()
        elif query.priority or not self._prioritized:
            found = self._engine.table(self.name).entry(self._decode_key(query))
            entries = [] if found is None else [found]
        else:  # of any priority
            match = self._encode_match(self._decode_match(query))
            entries = [
                entry
                for entry in self._engine.table(self.name).entries()
                if self._encode_match(entry.key.match) == match
            ]
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
        for entry in self._engine.table(self.name).entries():
            if not entry.is_const:
                self._engine.table(self.name).delete(entry.key)

    def export(self) -> Iterator[p4r.Update]:
        """The updates that bring an empty table to the present contents."""
        query = p4r.TableEntry(meter_config=p4r.MeterConfig())
        for entry in self._engine.table(self.name).entries():
            message = self._encode_entry(entry)
            self.resources.read(entry.key, query, message)
            if not entry.is_const:
                yield p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=message))
            elif message.HasField("meter_config"):
                yield self._export_meter(entry.key)
        if self.default_is_ours:
            default = p4r.Entity(table_entry=self._default_entry())
            yield p4r.Update(type=p4r.Update.MODIFY, entity=default)
        if self.resources.meter is not None:
            yield self._export_meter(None)

    def _export_meter(self, key: EntryKey | None) -> p4r.Update:
        metered = p4r.DirectMeterEntry(
            table_entry=self._encode_key(key), config=self.resources.meter_config(key)
        )
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(direct_meter_entry=metered))

    # Direct resources

    def modify_counter(self, message: p4r.DirectCounterEntry) -> None:
        """Set the counter of the entry with a key; without data nothing changes."""
        self.resources.require_counter()
        key = self._key_of(message.table_entry)
        if message.HasField("data"):
            self.resources.write_counter(key, message.data)

    def read_counters(self, query: p4r.TableEntry) -> Iterator[p4r.DirectCounterEntry]:
        """The counter of the entry with the query's key (NOT_FOUND without one), or of every entry with a key."""
        self.resources.require_counter()
        for key in self._keys_of(query):
            yield p4r.DirectCounterEntry(table_entry=self._encode_key(key), data=self.resources.counter(key))

    def modify_meter(self, message: p4r.DirectMeterEntry) -> None:
        """Set the meter of the entry with a key; without a config it is reset, without counters they stay."""
        self.resources.require_meter()
        key = self._key_of(message.table_entry)
        self.resources.write_meter(key, message.config if message.HasField("config") else None)
        if message.HasField("counter_data"):
            self.resources.write_meter_counters(key, message.counter_data)

    def read_meters(self, query: p4r.DirectMeterEntry) -> Iterator[p4r.DirectMeterEntry]:
        """The meter of the entry with the query's key (NOT_FOUND without one), or of every entry with a key."""
        self.resources.require_meter()
        for key in self._keys_of(query.table_entry):
            message = p4r.DirectMeterEntry(
                table_entry=self._encode_key(key), config=self.resources.meter_config(key)
            )
            if query.HasField("counter_data"):
                message.counter_data.CopyFrom(self.resources.meter_counters(key))
            yield message

    def _key_of(self, message: p4r.TableEntry) -> EntryKey | None:
        """The key of an entry that is there, None for the default entry; NOT_FOUND."""
        if not message.is_default_action:
            return self._present(self._decode_key(message)).key
        if message.match or message.priority:
            raise invalid(f"table {self.name}: the default entry has neither match fields nor a priority")
        return None

    def _keys_of(self, query: p4r.TableEntry) -> Sequence[EntryKey | None]:
        if query.match or query.is_default_action:
            return [self._key_of(query)]
        return [entry.key for entry in self._engine.table(self.name).entries()]

    # Messages

    def _encode_key(self, key: EntryKey | None) -> p4r.TableEntry:
        if key is None:
            return p4r.TableEntry(table_id=self.id, is_default_action=True)
        return p4r.TableEntry(table_id=self.id, priority=key.priority, match=self._encode_match(key.match))

    def _encode_match(self, match: tuple[Match, ...]) -> list[p4r.FieldMatch]:
        encoded = [field.encode(part) for field, part in zip(self.fields, match, strict=True)]
        return [part for part in encoded if part is not None]

    def _encode_entry(self, entry: Entry) -> p4r.TableEntry:
        message = self._encode_key(entry.key)
        self._encode_action(message.action, entry.key, entry.action)
        message.is_const = entry.is_const
        message.idle_timeout_ns = self.idle_timeouts.get(entry.key, 0)
        self._add_cookie(message, entry.key)
        return message

    def _default_entry(self) -> p4r.TableEntry:
        message = self._encode_key(None)
        message.is_const = self.has_const_default
        action = self._engine.table(self.name).default()
        if action is not None:
            self._encode_action(message.action, None, action)
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

    def _decode_match(self, message: p4r.TableEntry) -> tuple[Match, ...]:
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
        return tuple([given[position] for position in range(len(given))])

    def _decode_key(self, message: p4r.TableEntry) -> EntryKey:
        match, priority = self._decode_match(message), message.priority
        if self._prioritized and priority <= 0:
            raise invalid(f"table {self.name} has overlapping matches: an entry needs a priority above 0")
        if priority and not self._prioritized:
            raise invalid(f"table {self.name} has only exact and lpm matches: leave the priority unset")
        return EntryKey(match, priority)

    def _fill_dont_cares(self, given: dict[int, Match]) -> None:
        for position, field in enumerate(self.fields):
            if position not in given:
                if field.dont_care is None:
                    raise invalid(f"{field.name}: an exact match needs a value (field {field.id})")
                given[position] = field.dont_care

    def _encode_action(self, message: p4r.TableAction, key: EntryKey | None, action: EntryAction) -> None:
        match action:
            case OneShot():
                message.CopyFrom(self._sets[key])
            case MemberReference(number):
                message.action_profile_member_id = number
            case GroupReference(number):
                message.action_profile_group_id = number
            case ActionCall():
                message.action.CopyFrom(self._actions_by_name[action.name].encode(action))

    def _decode_action(self, message: p4r.TableAction, *, default: bool) -> EntryAction | None:
        kind = message.WhichOneof("type")
        if kind is None:
            return None
        if (kind == "action") == (self._profile is not None) and not (default and kind == "action"):
            how = "directly" if self._profile is None else "by an action profile's members or groups"
            raise invalid(f"table {self.name} takes actions {how}, not by {kind}")
        chooses = kind in ("action_profile_group_id", "action_profile_action_set")
        if chooses and self._profile is not None and not self._profile.with_selector:
            raise invalid(f"table {self.name}: its profile has no selector: name a member, not {kind}")
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
        if message.action_selection_mode not in p4r.ActionProfileActionSet.ActionSelectionMode.values():
            raise invalid(f"{what}: there is no action_selection_mode {message.action_selection_mode}")
        if message.size_semantics not in p4r.ActionProfileActionSet.SizeSemantics.values():
            raise invalid(f"{what}: there are no size_semantics {message.size_semantics}")
        weights = check_weights(
            self._profile,
            [item.weight for item in items],
            self._profile.max_group_size,
            what,
            by_members=_BY_MEMBERS.get(message.size_semantics),
        )
        return OneShot(
            tuple(
                [
                    (
                        self._decode_call(item.action, default=False),
                        0 if self._ports.passes_over(item, what) else weight,
                    )
                    for item, weight in zip(items, weights, strict=True)
                ]
            ),
            random=message.action_selection_mode == p4r.ActionProfileActionSet.RANDOM,
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
        entry = self._engine.table(self.name).entry(key)
        if entry is None:
            raise not_found(f"table {self.name} has no such entry")
        return entry

    def _immutable(self) -> Exception:
        return denied(f"table {self.name}: the program declares these entries const")
