"""A match table for the control plane: entries by key, stored in addition to the lookup structure in C."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from struct import Struct

from fanin.native.text import counted
from fanin.p4switch.bmv2json.notation import entry_text, key_text
from fanin.p4switch.bmv2json.program import Action, Program, Table
from fanin.p4switch.codegen.keys import EntryExtra, KeyLayout, PackedKey
from fanin.p4switch.engine.action_profile import ProfileState
from fanin.p4switch.engine.library import runtime, words
from fanin.p4switch.engine.meters import Meter
from fanin.p4switch.engine.switch import RunningSwitch, locked
from fanin.p4switch.entries import (
    ActionCall,
    CounterValue,
    Entry,
    EntryAction,
    EntryKey,
    Exact,
    GroupReference,
    Lpm,
    Match,
    MemberReference,
    MeterConfig,
    MeterCounters,
    OneShot,
    Range,
    TableError,
    TableErrorCode,
    Ternary,
)
from fanin.p4switch.word_packing import to_words, word_count

# Of a handle, as in BMv2: a handle is an i32 over Thrift.
_INDEX_BITS = 24
_REUSES = 1 << 7


@dataclass(slots=True)
class _Installed:
    index: int
    entry: Entry


@dataclass(frozen=True, slots=True)
class TableShape:
    """Properties of a table that all switches with the same program share.

    Attributes:
        program: The program.
        table: The table.
        keys: The layout of its keys.
        extra: The additional words of an entry.
        numbers: The numbers of its actions, by name.
        data_words: The words of the longest action data.
        default: The program's default action.
        entries: The program's entries.
        simple: Number and widths of the parameters of the actions whose parameters each fit into a word, by name.
    """

    program: Program
    table: Table
    keys: KeyLayout
    extra: EntryExtra
    numbers: Mapping[str, int]
    data_words: int
    default: ActionCall | None
    entries: tuple[Entry, ...]
    simple: Mapping[str, tuple[int, tuple[int, ...]]]

    @classmethod
    def of(cls, program: Program, table: Table) -> TableShape:
        """Return the shape of a table, or of a value set's table."""
        keys = KeyLayout(table)
        default = table.default
        numbers = {a.name: n for n, a in reversed(list(enumerate(table.actions)))}
        widths = {name: tuple(p.width for p in table.actions[n].parameters) for name, n in numbers.items()}
        return cls(
            program,
            table,
            keys,
            EntryExtra.of(program, table),
            numbers,
            max((_words_of(a) for a in table.actions), default=0),
            None if default is None else ActionCall(program.actions[default.action].name, default.data),
            tuple(_const_entries(program, table, keys)),
            {name: (numbers[name], of) for name, of in widths.items() if max(of, default=0) <= 64},
        )


class MatchTable:
    """Match table of a running switch.

    Writes raise TableError in these cases:

    - The key exists already, or does not exist.
    - The table is full.
    - The match or the action does not fit.
    - The program declares the table or the default action constant.
    """

    def __init__(
        self,
        switch: RunningSwitch,
        shape: TableShape,
        address: int,
        profile: ProfileState | None = None,
    ) -> None:
        self.program = shape.program
        self.table = shape.table
        self._switch = switch
        self.keys = shape.keys
        self.is_const = shape.table.const_entries is not None
        self._address = address
        self._installed: dict[PackedKey, _Installed] = {}
        self._by_index: dict[int, PackedKey] = {}
        self._reused: Counter[int] = Counter()  # how often an index had another entry before
        self._numbers = shape.numbers
        self._data_words = shape.data_words
        self._default: EntryAction | None = None
        self._profile = profile
        self._groups: dict[GroupReference | OneShot, ctypes.Array[ctypes.c_uint64]] = {}
        if profile is not None:
            self._data_words = max(1, self._data_words)  # a group's address
            profile.tables.add(self)
        self._simple = shape.simple
        extra = shape.extra
        self._meter_rates = 0 if extra.meter is None else extra.meter.rates
        self._hit_at = extra.last_hit
        layout = self.keys
        # Both are called for every entry.
        self._pack_words = Struct(f"={2 * layout.words + layout.ranges + self._data_words}Q").pack
        self._table_add = runtime().table_add
        runtime().table_open(
            address, layout.words, layout.ranges, layout.joined, self._data_words, extra.words
        )
        self._initial: EntryAction | None = shape.default
        self._set_default(self._initial)
        self._declared = shape.entries
        for entry in shape.entries:
            if self.keys.pack(entry.key) not in self._installed:  # of equal keys the first wins
                self._add(entry)

    @locked
    def release(self, size: int) -> None:
        """Make the program's entries ordinary ones, which can be changed, in a table of at least `size` entries.

        Entries that are `const` themselves stay constant.
        The JSON does not say whether a program declares `entries` or `const entries`; P4Info does.
        """
        self.is_const = False
        self.table = replace(self.table, max_size=max(size, self.table.max_size))
        declared = zip(self._declared, self.table.const_entries or (), strict=True)
        const = {self.keys.pack(entry.key) for entry, described in declared if described.is_const}
        for packed, installed in self._installed.items():
            installed.entry = replace(installed.entry, is_const=packed in const)

    @locked
    def insert(self, entry: Entry) -> None:
        """Add an entry."""
        self._writable()
        self._check_kind(entry.action)
        if len(self._installed) >= self.table.max_size and self.entry(entry.key) is None:
            raise self._error(TableErrorCode.RESOURCE_EXHAUSTED, f"full: {self.table.max_size} entries")
        index = self._add(entry)
        if self._hit_at is not None:
            self._last_hit(index).value = self._switch.now()

    @locked
    def modify(self, entry: Entry) -> None:
        """Replace the action of an entry."""
        self._writable()
        installed = self._find(entry.key)
        self._changeable(installed)
        self._check_kind(entry.action)
        number, data = self._resolve(entry.action)
        runtime().table_set(self._address, installed.index, number, words(data))
        installed.entry = entry
        self._forget_groups()

    @locked
    def delete(self, key: EntryKey) -> None:
        """Remove the entry with a key."""
        self._writable()
        packed = self.keys.pack(key)
        installed = self._find(key)
        self._changeable(installed)
        runtime().table_remove(self._address, installed.index, words((*packed.mask, *packed.high)))
        del self._installed[packed]
        del self._by_index[installed.index]
        self._reused[installed.index] += 1
        self._forget_groups()

    @locked
    def clear(self) -> None:
        """Remove all entries except constant ones."""
        for entry in self.entries():
            if not entry.is_const:
                self.delete(entry.key)

    @locked
    def entries(self) -> list[Entry]:
        """Return all entries, in the order in which they were added."""
        return [i.entry for i in self._installed.values()]

    @locked
    def places(self) -> dict[int, Entry]:
        """Return all entries by their index in the lookup structure."""
        return {installed.index: installed.entry for installed in self._installed.values()}

    @locked
    def entry(self, key: EntryKey) -> Entry | None:
        """Return the entry with a key, or None."""
        installed = self._installed.get(self.keys.pack(key))
        return installed.entry if installed else None

    @locked
    def handle(self, key: EntryKey) -> int:
        """Return the handle of an entry: its index, and above it how often the index was used before (modulo 128)."""
        index = self._find(key).index
        return index | self._reused[index] % _REUSES << _INDEX_BITS

    @locked
    def entry_with_handle(self, handle: int) -> Entry | None:
        """Return the entry with a handle, or None if it has been removed, even if its index is in use again."""
        index = handle & (1 << _INDEX_BITS) - 1
        packed = self._by_index.get(index)
        if packed is None or handle >> _INDEX_BITS != self._reused[index] % _REUSES:
            return None
        return self._installed[packed].entry

    def had_handle(self, handle: int) -> bool:
        """Return whether an entry that has been removed had this handle."""
        index = handle & (1 << _INDEX_BITS) - 1
        return 0 <= handle >> _INDEX_BITS < self._reused[index]

    @locked
    def set_default(self, action: EntryAction | None) -> None:
        """Set the default action. None restores the program's."""
        if self.table.default is not None and self.table.default.is_const and action != self._initial:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "its default action is constant")
        self._set_default(self._initial if action is None else action)

    @locked
    def default(self) -> EntryAction | None:
        """Return the default action."""
        return self._default

    @locked
    def counter(self, key: EntryKey | None) -> CounterValue:
        """Return the entry's direct counter. Here and below, None is the default entry's key."""
        self._counted()
        packets, size = ctypes.c_uint64(), ctypes.c_uint64()
        runtime().table_counter(self._address, self._index(key), ctypes.byref(packets), ctypes.byref(size))
        return CounterValue(packets.value, size.value)

    @locked
    def write_counter(self, key: EntryKey | None, value: CounterValue) -> None:
        """Set the entry's direct counter."""
        self._counted()
        runtime().table_counter_set(self._address, self._index(key), value.packets, value.bytes)

    def keep_counters(self, previous: MatchTable) -> None:
        """Copy the direct counters of another switch's table, of the entries that both have and the default entry."""
        if not (self.table.with_counters and previous.table.with_counters):
            return
        for key in (None, *(entry.key for entry in previous.entries())):
            if key is None or self.entry(key) is not None:
                self.write_counter(key, previous.counter(key))

    @locked
    def meter_config(self, key: EntryKey | None) -> MeterConfig | None:
        """Return the rates of the entry's direct meter; None if it has none, so that everything is green."""
        return self._meter(key).config()

    @locked
    def configure_meter(self, key: EntryKey | None, config: MeterConfig | None) -> None:
        """Set the rates of the entry's direct meter."""
        self._meter(key).configure(config, self._meter_rates)

    @locked
    def meter_counters(self, key: EntryKey | None) -> MeterCounters:
        """Return what the entry's direct meter has marked green, yellow and red."""
        return self._meter(key).counters()

    @locked
    def set_meter_counters(self, key: EntryKey | None, counters: MeterCounters) -> None:
        """Set the counters of the entry's direct meter."""
        self._meter(key).set_counters(counters)

    @locked
    def last_hits(self) -> list[tuple[Entry, int]]:
        """Return all entries with the time of their last packet or their insertion in microseconds; 0 if unknown."""
        if self._hit_at is None:
            return [(i.entry, 0) for i in self._installed.values()]
        return [(i.entry, self._last_hit(i.index).value) for i in self._installed.values()]

    def idle_times(self) -> dict[EntryKey, int]:
        """Return the nanoseconds since each entry was hit or added."""
        now = self._switch.now()
        return {entry.key: 1000 * max(0, now - hit) for entry, hit in self.last_hits()}

    # For its action profile

    def check_action(self, call: ActionCall) -> None:
        """Check that an entry of this table could have an action.

        Raises:
            TableError: INVALID_ARGUMENT if it could not.
        """
        self._action(call)

    def refresh(self) -> None:
        """Update entries after a member or group of the profile has changed."""
        old, self._groups = self._groups, {}
        for installed in self._installed.values():
            if not isinstance(installed.entry.action, ActionCall):
                number, data = self._resolve(installed.entry.action)
                runtime().table_set(self._address, installed.index, number, words(data))
        if self._default is not None:
            self._set_default(self._default)
        del old  # keep the old groups until here: entries pointed at them

    def names(self, reference: MemberReference | GroupReference) -> bool:
        """Return whether an entry refers to this member or group."""
        return reference == self._default or any(
            installed.entry.action == reference for installed in self._installed.values()
        )

    def has_action_sets(self) -> bool:
        """Return whether entries have groups of their own: either all have, or none."""
        return any(isinstance(action, OneShot) for action in islice(self._groups, 1))

    # Internals

    def _meter(self, key: EntryKey | None) -> Meter:
        if not self._meter_rates:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no direct meter")
        return Meter.from_address(runtime().table_extra(self._address, self._index(key)))

    def _last_hit(self, index: int) -> ctypes.c_uint64:
        place = runtime().table_extra(self._address, index) + 8 * (self._hit_at or 0)
        return ctypes.c_uint64.from_address(place)

    def _add(self, entry: Entry) -> int:
        packed = self.keys.pack(entry.key)
        if packed in self._installed:
            raise self._error(TableErrorCode.ALREADY_EXISTS, f"an entry for {self._text(entry.key)} exists")
        number, data = self._resolve(entry.action)
        packed_words = self._pack_words(*packed.words, *packed.mask, *packed.high, *data)
        index = self._table_add(self._address, packed_words, packed.priority, number)
        if index < 0:
            raise self._error(TableErrorCode.RESOURCE_EXHAUSTED, "out of memory")
        self._installed[packed] = _Installed(index, entry)
        self._by_index[int(index)] = packed
        return int(index)

    def _set_default(self, action: EntryAction | None) -> None:
        if action is not None:
            number, data = self._resolve(action)
        elif self.table.action("NoAction") is not None:
            number, data = self._action(ActionCall("NoAction"))
        else:
            number, data = len(self.table.actions), (0,) * self._data_words  # no action at all
        runtime().table_set(self._address, -1, number, words(data))
        self._default = action

    def _resolve(self, action: EntryAction) -> tuple[int, tuple[int, ...]]:
        """Return the number and data of an action as an entry holds them; for a group its number and its address."""
        if not self.table.actions:
            return 0, ()  # a value set
        if isinstance(action, ActionCall):
            return self._action(action)
        if self._profile is None:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no action profile")
        if isinstance(action, MemberReference):
            return self._action(self._profile.member(action.id))
        if isinstance(action, OneShot):
            self._profile.check_one_shot()
        if action not in self._groups:
            self._groups[action] = self._group(action)
        address = ctypes.addressof(self._groups[action])
        return len(self.table.actions) + 1, (address,) + (0,) * (self._data_words - 1)

    def _group(self, action: GroupReference | OneShot) -> ctypes.Array[ctypes.c_uint64]:
        """Return a group as the C of tables.py reads it: choices, words of each, is random; then actions and data."""
        assert self._profile is not None
        if isinstance(action, GroupReference):
            calls, random = self._profile.group(action.id), False
        else:
            calls = [call for call, weight in action.choices for _ in range(weight)]
            random = action.random
        packed: list[int] = [len(calls), 1 + self._data_words, random]
        for call in calls:
            number, data = self._action(call)
            packed += [number, *data]
        return words(tuple(packed))

    def _forget_groups(self) -> None:
        """Drop the groups that no entry refers to now."""
        if self._groups:
            named = {i.entry.action for i in self._installed.values()} | {self._default}
            self._groups = {a: g for a, g in self._groups.items() if a in named}

    def _action(self, call: ActionCall) -> tuple[int, tuple[int, ...]]:
        """Return the action's number in the table, and its data padded to the table's width."""
        simple = self._simple.get(call.name)
        if simple is not None and len(call.args) == len(simple[1]):
            index, widths = simple
            for value, width in zip(call.args, widths, strict=True):
                if value >> width:  # also of negative numbers
                    break
            else:
                return index, call.args + (0,) * (self._data_words - len(widths))
        number = self._numbers.get(call.name)
        if number is None:
            raise self._error(
                TableErrorCode.INVALID_ARGUMENT, f"action {call.name} is not one of its actions"
            )
        action = self.table.actions[number]
        if len(call.args) != len(action.parameters):
            raise self._error(
                TableErrorCode.INVALID_ARGUMENT,
                f"action {call.name} needs {counted(len(action.parameters), 'argument')}, not {len(call.args)}",
            )
        data: list[int] = []
        for parameter, value in zip(action.parameters, call.args, strict=True):
            if not 0 <= value < 1 << parameter.width:
                raise self._error(
                    TableErrorCode.INVALID_ARGUMENT,
                    f"action {call.name}: {parameter.name} = {value} does not fit into {parameter.width} bits",
                )
            data += to_words(value, parameter.width)
        return number, tuple(data) + (0,) * (self._data_words - len(data))

    def _index(self, key: EntryKey | None) -> int:
        """Return the entry's index in the lookup structure."""
        return -1 if key is None else self._find(key).index

    def _find(self, key: EntryKey) -> _Installed:
        installed = self._installed.get(self.keys.pack(key))
        if installed is None:
            raise self._error(TableErrorCode.NOT_FOUND, f"no entry for {self._text(key)}")
        return installed

    def _text(self, key: EntryKey) -> str:
        return key_text(entry_text(self.program, self.table, key), key.priority)

    def _writable(self) -> None:
        if self.is_const:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "its entries are constant")
        if not self.table.keys:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no keys, so it takes no entries")

    def _check_kind(self, action: EntryAction) -> None:
        """Refuse an action of its own in a table with an action profile (P4Runtime specification, "TableAction")."""
        if self._profile is not None and isinstance(action, ActionCall):
            raise self._error(
                TableErrorCode.INVALID_ARGUMENT,
                f"its entries refer to members or groups of the action profile {self._profile.profile.name}, "
                f"and have no action of their own, such as {action.name}",
            )

    def _changeable(self, installed: _Installed) -> None:
        if installed.entry.is_const:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "this entry is constant")

    def _counted(self) -> None:
        if not self.table.with_counters:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no direct counter")

    def _error(self, code: TableErrorCode, message: str) -> TableError:
        return TableError(code, f"table {self.table.name}: {message}")


def _const_entries(program: Program, table: Table, keys: KeyLayout) -> Iterator[Entry]:
    for const in table.const_entries or ():
        matches: list[Match] = []
        for match, key in zip(const.matches, table.keys, strict=True):
            match match.kind:
                case "lpm":
                    outside = (1 << max(0, key.width - match.second)) - 1
                    matches.append(Lpm(match.value & ~outside, match.second))
                case "ternary":
                    matches.append(Ternary(match.value & match.second, match.second))
                case "range":
                    matches.append(Range(match.value, match.second))
                case _:
                    matches.append(Exact(match.value))
        priority = const.priority if keys.has_priority else 0
        call = ActionCall(program.actions[const.action].name, const.data)
        yield Entry(EntryKey(tuple(matches), priority), call, is_const=True)


def _words_of(action: Action) -> int:
    return sum(word_count(p.width) for p in action.parameters)
