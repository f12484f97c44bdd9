"""The part of BMv2's service Standard about match tables and action profiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fanin.p4switch.bmv2_runtime.interface import (
    BmActionEntry,
    BmActionEntryType,
    BmAddEntryOptions,
    BmCounterValue,
    BmMatchParam,
    BmMatchParamExact,
    BmMatchParamLPM,
    BmMatchParamRange,
    BmMatchParamTernary,
    BmMatchParamType,
    BmMtActProfGroup,
    BmMtActProfMember,
    BmMtEntry,
    BmMtEntryLife,
    InvalidTableOperation,
    TableOperationErrorCode,
)
from fanin.p4switch.bmv2_runtime.rates import BadRatesError, meter_config, meter_rates
from fanin.p4switch.bmv2json.program import Action, TableKey
from fanin.p4switch.engine.action_profile import ProfileState
from fanin.p4switch.engine.match_table import MatchTable
from fanin.p4switch.entries import (
    HIGHEST_PRIORITY,
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
    Optional_,
    Range,
    TableError,
    TableErrorCode,
    Ternary,
)

if TYPE_CHECKING:
    from fanin.p4switch.engine.engine import Engine

_Code = TableOperationErrorCode
# What the engine's errors mean, where nothing was checked before.
_CODES = {
    TableErrorCode.ALREADY_EXISTS: _Code.DUPLICATE_ENTRY,
    TableErrorCode.RESOURCE_EXHAUSTED: _Code.TABLE_FULL,
    TableErrorCode.NOT_FOUND: _Code.BAD_MATCH_KEY,
    TableErrorCode.INVALID_ARGUMENT: _Code.ERROR,
    TableErrorCode.FAILED_PRECONDITION: _Code.ERROR,
}


def _error(code: TableOperationErrorCode) -> InvalidTableOperation:
    return InvalidTableOperation(code)


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except TableError as error:
        raise _error(_CODES[error.code]) from None


def number(data: bytes) -> int:
    """Return a value as BMv2's interface carries it: bytes, the highest first."""
    return int.from_bytes(data, "big")


def octets(value: int, width: int) -> bytes:
    """Return a value of this many bits as bytes."""
    return value.to_bytes((width + 7) // 8, "big")


class Tables:
    """Methods about tables and action profiles, of the engine that runs now."""

    _engine: Engine

    def __init__(self) -> None:
        self._timeouts: dict[tuple[str, EntryKey], int] = {}  # milliseconds

    # Entries of any table

    def bm_mt_get_num_entries(self, table_name: str) -> int:
        """Return the number of entries."""
        return len(self._table(table_name).entries())

    def bm_mt_clear_entries(self, table_name: str, reset_default_entry: bool) -> None:
        """Remove all entries, and restore the default one if wanted."""
        table = self._writable(table_name)
        table.clear()
        if reset_default_entry:
            with _engine_errors():
                table.set_default(None)

    def bm_mt_add_entry(
        self,
        table_name: str,
        match_key: Sequence[BmMatchParam],
        action_name: str,
        action_data: Sequence[bytes],
        options: BmAddEntryOptions,
    ) -> int:
        """Add an entry with an action. Return its handle."""
        table = self._writable(table_name, indirect=False)
        return self._add(table, match_key, options, self._call(table, action_name, action_data))

    def bm_mt_modify_entry(
        self, table_name: str, entry_handle: int, action_name: str, action_data: Sequence[bytes]
    ) -> None:
        """Replace the action of an entry."""
        table = self._writable(table_name, indirect=False)
        self._modify(table, entry_handle, self._call(table, action_name, action_data))

    def bm_mt_delete_entry(self, table_name: str, entry_handle: int) -> None:
        """Remove an entry."""
        table = self._writable(table_name)
        key = self._entry(table, entry_handle).key
        table.delete(key)
        self._timeouts.pop((table.table.name, key), None)

    bm_mt_indirect_delete_entry = bm_mt_delete_entry

    def bm_mt_set_entry_ttl(self, table_name: str, entry_handle: int, timeout_ms: int) -> None:
        """Set after how long without packets an entry counts as idle. 0 means never."""
        table = self._table(table_name)
        if not table.table.support_timeout:
            raise _error(_Code.AGEING_DISABLED)
        self._timeouts[table_name, self._entry(table, entry_handle).key] = timeout_ms

    bm_mt_indirect_set_entry_ttl = bm_mt_set_entry_ttl

    def bm_mt_set_default_action(
        self, table_name: str, action_name: str, action_data: Sequence[bytes]
    ) -> None:
        """Set the default action."""
        table = self._table(table_name, indirect=False)
        self._set_default(table, self._call(table, action_name, action_data))

    def bm_mt_reset_default_entry(self, table_name: str) -> None:
        """Restore the program's default action."""
        self._set_default(self._table(table_name), None)

    bm_mt_indirect_reset_default_entry = bm_mt_reset_default_entry

    def bm_mt_get_entries(self, table_name: str) -> list[BmMtEntry]:
        """Return all entries."""
        table = self._table(table_name)
        idle = table.idle_times() if table.table.support_timeout else {}
        return [self._described(table, entry, idle.get(entry.key)) for entry in table.entries()]

    def bm_mt_get_entry(self, table_name: str, entry_handle: int) -> BmMtEntry:
        """Return an entry by its handle."""
        table = self._table(table_name)
        return self._described_now(table, self._entry(table, entry_handle))

    def bm_mt_get_entry_from_key(
        self,
        table_name: str,
        match_key: Sequence[BmMatchParam],
        options: BmAddEntryOptions,
    ) -> BmMtEntry:
        """Return an entry by its key; the default entry for an empty key."""
        table = self._table(table_name)
        if not match_key and table.table.keys:
            return BmMtEntry([], BmAddEntryOptions(-1), -1, self.bm_mt_get_default_entry(table_name))
        entry = table.entry(self._key(table, match_key, options))
        if entry is None:
            raise _error(_Code.BAD_MATCH_KEY)
        return self._described_now(table, entry)

    def bm_mt_get_default_entry(self, table_name: str) -> BmActionEntry:
        """Return the default entry."""
        table = self._table(table_name)
        default = table.default()
        return (
            BmActionEntry(BmActionEntryType.NONE) if default is None else self._action_entry(table, default)
        )

    # Entries that refer to members and groups

    def bm_mt_indirect_add_entry(
        self,
        table_name: str,
        match_key: Sequence[BmMatchParam],
        mbr_handle: int,
        options: BmAddEntryOptions,
    ) -> int:
        """Add an entry with a member. Return its handle."""
        table = self._writable(table_name, indirect=True)
        return self._add(table, match_key, options, self._member_of(table, mbr_handle))

    def bm_mt_indirect_modify_entry(self, table_name: str, entry_handle: int, mbr_handle: int) -> None:
        """Let an entry refer to a member."""
        table = self._writable(table_name, indirect=True)
        self._modify(table, entry_handle, self._member_of(table, mbr_handle))

    def bm_mt_indirect_set_default_member(self, table_name: str, mbr_handle: int) -> None:
        """Let the default entry refer to a member."""
        table = self._table(table_name, indirect=True)
        self._set_default(table, self._member_of(table, mbr_handle))

    def bm_mt_indirect_ws_add_entry(
        self,
        table_name: str,
        match_key: Sequence[BmMatchParam],
        grp_handle: int,
        options: BmAddEntryOptions,
    ) -> int:
        """Add an entry with a group. Return its handle."""
        table = self._writable(table_name, indirect=True)
        return self._add(table, match_key, options, self._group_of(table, grp_handle))

    def bm_mt_indirect_ws_modify_entry(self, table_name: str, entry_handle: int, grp_handle: int) -> None:
        """Let an entry refer to a group."""
        table = self._writable(table_name, indirect=True)
        self._modify(table, entry_handle, self._group_of(table, grp_handle))

    def bm_mt_indirect_ws_set_default_group(self, table_name: str, grp_handle: int) -> None:
        """Let the default entry refer to a group."""
        table = self._table(table_name, indirect=True)
        self._set_default(table, self._group_of(table, grp_handle))

    # Action profiles

    def bm_mt_act_prof_add_member(
        self, act_prof_name: str, action_name: str, action_data: Sequence[bytes]
    ) -> int:
        """Add a member. Return its handle."""
        profile = self._profile(act_prof_name)
        handle = _smallest_free(profile.members)
        with _engine_errors():
            profile.insert_member(handle, self._member_call(profile, action_name, action_data))
        return handle

    def bm_mt_act_prof_modify_member(
        self,
        act_prof_name: str,
        mbr_handle: int,
        action_name: str,
        action_data: Sequence[bytes],
    ) -> None:
        """Replace the action of a member."""
        profile = self._profile(act_prof_name, member=mbr_handle)
        with _engine_errors():
            profile.modify_member(mbr_handle, self._member_call(profile, action_name, action_data))

    def bm_mt_act_prof_delete_member(self, act_prof_name: str, mbr_handle: int) -> None:
        """Remove a member that is not in use."""
        profile = self._profile(act_prof_name, member=mbr_handle)
        try:
            profile.delete_member(mbr_handle)
        except TableError:
            raise _error(_Code.MBR_STILL_USED) from None

    def bm_mt_act_prof_create_group(self, act_prof_name: str) -> int:
        """Add a group without members. Return its handle."""
        profile = self._selector(act_prof_name)
        handle = _smallest_free(profile.groups)
        with _engine_errors():
            profile.insert_group(handle, ())
        return handle

    def bm_mt_act_prof_delete_group(self, act_prof_name: str, grp_handle: int) -> None:
        """Remove a group that is not in use."""
        profile = self._selector(act_prof_name, group=grp_handle)
        try:
            profile.delete_group(grp_handle)
        except TableError:
            raise _error(_Code.GRP_STILL_USED) from None

    def bm_mt_act_prof_add_member_to_group(
        self, act_prof_name: str, mbr_handle: int, grp_handle: int
    ) -> None:
        """Add a member to a group."""
        profile = self._selector(act_prof_name, group=grp_handle, member=mbr_handle)
        members = profile.groups[grp_handle]
        if any(member == mbr_handle for member, _ in members):
            raise _error(_Code.MBR_ALREADY_IN_GRP)
        with _engine_errors():
            profile.modify_group(grp_handle, (*members, (mbr_handle, 1)))

    def bm_mt_act_prof_remove_member_from_group(
        self, act_prof_name: str, mbr_handle: int, grp_handle: int
    ) -> None:
        """Remove a member from a group."""
        profile = self._selector(act_prof_name, group=grp_handle, member=mbr_handle)
        members = profile.groups[grp_handle]
        rest = tuple(pair for pair in members if pair[0] != mbr_handle)
        if len(rest) == len(members):
            raise _error(_Code.MBR_NOT_IN_GRP)
        with _engine_errors():
            profile.modify_group(grp_handle, rest)

    def bm_mt_act_prof_get_members(self, act_prof_name: str) -> list[BmMtActProfMember]:
        """Return all members."""
        profile = self._profile(act_prof_name)
        return [self._described_member(handle, profile.members[handle]) for handle in sorted(profile.members)]

    def bm_mt_act_prof_get_member(self, act_prof_name: str, mbr_handle: int) -> BmMtActProfMember:
        """Return a member."""
        profile = self._profile(act_prof_name, member=mbr_handle)
        return self._described_member(mbr_handle, profile.members[mbr_handle])

    def bm_mt_act_prof_get_groups(self, act_prof_name: str) -> list[BmMtActProfGroup]:
        """Return all groups."""
        profile = self._selector(act_prof_name)
        return [
            BmMtActProfGroup(handle, [m for m, _ in members])
            for handle, members in sorted(profile.groups.items())
        ]

    def bm_mt_act_prof_get_group(self, act_prof_name: str, grp_handle: int) -> BmMtActProfGroup:
        """Return a group."""
        profile = self._selector(act_prof_name, group=grp_handle)
        return BmMtActProfGroup(grp_handle, [member for member, _ in profile.groups[grp_handle]])

    # Direct counters and meters

    def bm_mt_read_counter(self, table_name: str, entry_handle: int) -> BmCounterValue:
        """Return the counter of an entry."""
        table = self._counted(table_name)
        value = table.counter(self._entry(table, entry_handle).key)
        return BmCounterValue(value.bytes, value.packets)

    def bm_mt_write_counter(self, table_name: str, entry_handle: int, value: BmCounterValue) -> None:
        """Set the counter of an entry."""
        table = self._counted(table_name)
        table.write_counter(
            self._entry(table, entry_handle).key, CounterValue(value.packets or 0, value.bytes or 0)
        )

    def bm_mt_reset_counters(self, table_name: str) -> None:
        """Set the counters of all entries to 0."""
        table = self._counted(table_name)
        for key in (None, *(entry.key for entry in table.entries())):
            table.write_counter(key, CounterValue(0, 0))

    def bm_mt_set_meter_rates(self, table_name: str, entry_handle: int, rates: Sequence[Any]) -> None:
        """Set the rates of an entry's meter."""
        table = self._metered(table_name)
        try:
            table.configure_meter(self._entry(table, entry_handle).key, meter_config(rates))
        except (BadRatesError, TableError):
            raise _error(_Code.INVALID_METER_OPERATION) from None

    def bm_mt_get_meter_rates(self, table_name: str, entry_handle: int) -> list[Any]:
        """Return the rates of an entry's meter."""
        table = self._metered(table_name)
        return meter_rates(table.meter_config(self._entry(table, entry_handle).key))

    # Finding and checking

    def _table(self, name: str, *, indirect: bool | None = None) -> MatchTable:
        table = self._engine.tables.get(name)
        if table is None:
            raise _error(_Code.INVALID_TABLE_NAME)
        if indirect is not None and indirect != (table.table.profile is not None):
            raise _error(_Code.WRONG_TABLE_TYPE)
        return table

    def _writable(self, name: str, *, indirect: bool | None = None) -> MatchTable:
        table = self._table(name, indirect=indirect)
        if table.is_const:
            raise _error(_Code.IMMUTABLE_TABLE_ENTRIES)
        return table

    def _counted(self, name: str) -> MatchTable:
        table = self._table(name)
        if not table.table.with_counters:
            raise _error(_Code.COUNTERS_DISABLED)
        return table

    def _metered(self, name: str) -> MatchTable:
        table = self._table(name)
        if table.table.direct_meter is None:
            raise _error(_Code.METERS_DISABLED)
        return table

    def _entry(self, table: MatchTable, handle: int) -> Entry:
        entry = table.entry_with_handle(handle)
        if entry is None:
            raise _error(_Code.EXPIRED_HANDLE if table.had_handle(handle) else _Code.INVALID_HANDLE)
        return entry

    def _profile(self, name: str, *, member: int | None = None) -> ProfileState:
        try:
            profile = self._engine.profile(name)
        except TableError:
            raise _error(_Code.INVALID_ACTION_PROFILE_NAME) from None
        if member is not None and member not in profile.members:
            raise _error(_Code.INVALID_MBR_HANDLE)
        return profile

    def _selector(self, name: str, *, group: int | None = None, member: int | None = None) -> ProfileState:
        profile = self._profile(name, member=member)
        if profile.profile.selector is None:
            raise _error(_Code.NO_ACTION_PROFILE_SELECTION)
        if group is not None and group not in profile.groups:
            raise _error(_Code.INVALID_GRP_HANDLE)
        return profile

    def _member_of(self, table: MatchTable, handle: int) -> MemberReference:
        assert table.table.profile is not None
        self._profile(table.table.profile, member=handle)
        return MemberReference(handle)

    def _group_of(self, table: MatchTable, handle: int) -> GroupReference:
        assert table.table.profile is not None
        if self._engine.profile(table.table.profile).profile.selector is None:
            raise _error(_Code.WRONG_TABLE_TYPE)
        profile = self._selector(table.table.profile, group=handle)
        if not profile.groups[handle]:
            raise _error(_Code.EMPTY_GRP)
        return GroupReference(handle)

    # Writing

    def _add(
        self,
        table: MatchTable,
        match_key: Sequence[BmMatchParam],
        options: BmAddEntryOptions | None,
        action: EntryAction,
    ) -> int:
        if not table.table.keys:
            raise _error(_Code.NO_TABLE_KEY)
        key = self._key(table, match_key, options)
        with _engine_errors():
            table.insert(Entry(key, action))
        return table.handle(key)

    def _modify(self, table: MatchTable, handle: int, action: EntryAction) -> None:
        entry = self._entry(table, handle)
        with _engine_errors():
            table.modify(Entry(entry.key, action))

    def _set_default(self, table: MatchTable, action: EntryAction | None) -> None:
        declared = table.table.default
        if action is not None and declared is not None and declared.is_const:
            raise _error(_Code.DEFAULT_ENTRY_IS_CONST)
        with _engine_errors():
            table.set_default(action)

    def _call(self, table: MatchTable, name: str, data: Sequence[bytes]) -> ActionCall:
        action = table.table.action(name)
        if action is None:
            raise _error(_Code.INVALID_ACTION_NAME)
        return _action_call(action, data)

    def _member_call(self, profile: ProfileState, name: str, data: Sequence[bytes]) -> ActionCall:
        tables = [t.table for t in self._engine.tables.values() if t.table.profile == profile.profile.name]
        action = next((found for table in tables if (found := table.action(name))), None)
        if action is None:
            raise _error(_Code.INVALID_ACTION_NAME)
        return _action_call(action, data)

    def _key(
        self, table: MatchTable, params: Sequence[BmMatchParam], options: BmAddEntryOptions | None
    ) -> EntryKey:
        keys = table.table.keys
        if len(params) != len(keys):
            raise _error(_Code.BAD_MATCH_KEY)
        match = tuple(_match(param, key) for param, key in zip(params, keys, strict=True))
        if not table.keys.has_priority:
            return EntryKey(match)
        priority = (options.priority if options else None) or 0
        if priority < 0:
            raise _error(_Code.ERROR)
        return EntryKey(match, HIGHEST_PRIORITY - priority)

    # Describing

    def _described_now(self, table: MatchTable, entry: Entry) -> BmMtEntry:
        idle = table.idle_times().get(entry.key) if table.table.support_timeout else None
        return self._described(table, entry, idle)

    def _described(self, table: MatchTable, entry: Entry, idle: int | None) -> BmMtEntry:
        """Return an entry as BMv2 describes it; `idle` is in nanoseconds, None without idle timeouts."""
        params = [_param(match, key) for match, key in zip(entry.key.match, table.table.keys, strict=True)]
        options = BmAddEntryOptions(HIGHEST_PRIORITY - entry.key.priority if table.keys.has_priority else -1)
        life = None
        if idle is not None:
            timeout = self._timeouts.get((table.table.name, entry.key), 0)
            life = BmMtEntryLife(timeout, min(idle // 1_000_000, HIGHEST_PRIORITY))
        action = self._action_entry(table, entry.action)
        return BmMtEntry(params, options, table.handle(entry.key), action, life)

    def _action_entry(self, table: MatchTable, action: EntryAction) -> BmActionEntry:
        match action:
            case ActionCall(name, args):
                found = table.table.action(name)
                assert found is not None
                data = _data(found, args)
                return BmActionEntry(BmActionEntryType.ACTION_DATA, action_name=name, action_data=data)
            case MemberReference(handle):
                return BmActionEntry(BmActionEntryType.MBR_HANDLE, mbr_handle=handle)
            case GroupReference(handle):
                return BmActionEntry(BmActionEntryType.GRP_HANDLE, grp_handle=handle)
        # A group of the entry's own, written over P4Runtime: the interface has no such thing.
        return BmActionEntry(BmActionEntryType.NONE)

    def _described_member(self, handle: int, call: ActionCall) -> BmMtActProfMember:
        action = next(a for a in self._engine.program.actions.values() if a.name == call.name)
        return BmMtActProfMember(handle, call.name, _data(action, call.args))


def _smallest_free(used: dict[int, Any]) -> int:
    return next(n for n in range(len(used) + 1) if n not in used)


def _action_call(action: Action, data: Sequence[bytes]) -> ActionCall:
    args = tuple(map(number, data))
    if len(args) != len(action.parameters) or any(
        value >> parameter.width for value, parameter in zip(args, action.parameters, strict=True)
    ):
        raise _error(_Code.BAD_ACTION_DATA)
    return ActionCall(action.name, args)


def _data(action: Action, args: Sequence[int]) -> list[bytes]:
    return [octets(value, p.width) for value, p in zip(args, action.parameters, strict=True)]


def _match(param: BmMatchParam, key: TableKey) -> Match:
    """Return the match of a key field, or raise BAD_MATCH_KEY if it is of another kind or does not fit."""
    match key.kind, param.type:
        case "exact", BmMatchParamType.EXACT if param.exact:
            return Exact(_value(param.exact.key, key))
        case "exact", BmMatchParamType.VALID if param.valid and key.width == 1:
            return Exact(int(param.valid.key))
        case "lpm", BmMatchParamType.LPM if param.lpm and 0 <= param.lpm.prefix_length <= key.width:
            length = param.lpm.prefix_length
            outside = (1 << key.width - length) - 1
            return Lpm(_value(param.lpm.key, key) & ~outside, length)
        case "ternary", BmMatchParamType.TERNARY if param.ternary:
            mask = _value(param.ternary.mask, key)
            return Ternary(_value(param.ternary.key, key) & mask, mask)
        case "optional", BmMatchParamType.TERNARY if param.ternary:
            mask = _value(param.ternary.mask, key)
            if mask in (0, (1 << key.width) - 1):
                return Optional_(_value(param.ternary.key, key) if mask else None)
        case "range", BmMatchParamType.RANGE if param.range:
            low, high = _value(param.range.start, key), _value(param.range.end_, key)
            if low <= high:
                return Range(low, high)
    raise _error(_Code.BAD_MATCH_KEY)


def _value(data: bytes, key: TableKey) -> int:
    value = number(data)
    if len(data) != (key.width + 7) // 8 or value >> key.width:
        raise _error(_Code.BAD_MATCH_KEY)
    return value


def _param(match: Match, key: TableKey) -> BmMatchParam:
    width = key.width
    match match:
        case Exact(value):
            return BmMatchParam(BmMatchParamType.EXACT, exact=BmMatchParamExact(octets(value, width)))
        case Lpm(value, length):
            return BmMatchParam(BmMatchParamType.LPM, lpm=BmMatchParamLPM(octets(value, width), length))
        case Ternary(value, mask):
            param = BmMatchParamTernary(octets(value, width), octets(mask, width))
            return BmMatchParam(BmMatchParamType.TERNARY, ternary=param)
        case Optional_(optional):
            mask = 0 if optional is None else (1 << width) - 1
            param = BmMatchParamTernary(octets(optional or 0, width), octets(mask, width))
            return BmMatchParam(BmMatchParamType.TERNARY, ternary=param)
        case Range(low, high):
            return BmMatchParam(
                BmMatchParamType.RANGE, range=BmMatchParamRange(octets(low, width), octets(high, width))
            )
