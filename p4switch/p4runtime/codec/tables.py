"""Tables: the keys and actions of P4Runtime's table entries, and the engine's.

Everything that a table's messages refer to by id is looked up once, when the pipeline is set, so that a write
needs one pass over its message and one call of the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from grpc import StatusCode

from fanin.p4switch.bmv2json.notation import key_text, match_text, number_text
from fanin.p4switch.engine.match_table import MatchTable
from fanin.p4switch.entries import (
    ActionCall,
    Entry,
    EntryAction,
    EntryKey,
    GroupReference,
    Match,
    MemberReference,
    OneShot,
    TableError,
    TableErrorCode,
)
from fanin.p4switch.p4runtime.codec.actions import ActionCodec
from fanin.p4switch.p4runtime.codec.matches import DECODERS, PRIORITIZED_KINDS, MatchField
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.codec.weights import check_weights
from fanin.p4switch.p4runtime.errors import P4RuntimeError, denied, invalid, listed, not_found
from fanin.p4switch.p4runtime.proto import p4i, p4r

_TABLE_ONLY, _DEFAULT_ONLY = p4i.ActionRef.TABLE_ONLY, p4i.ActionRef.DEFAULT_ONLY
_BY_MEMBERS = {
    p4r.ActionProfileActionSet.SUM_OF_WEIGHTS: False,
    p4r.ActionProfileActionSet.SUM_OF_MEMBERS: True,
}


class P4InfoTable:
    """Table of the engine with P4Info's description. The default entry has None instead of a key.

    `info` is the description and `installed` the engine's table. `profile` is its action profile, `is_counted` is True
    if its entries have counters, and `meter` is the type of their meters. Errors are raised as P4RuntimeError, or as
    TableError by the engine.
    """

    def __init__(
        self,
        info: p4i.Table,
        installed: MatchTable,
        actions: Mapping[int, ActionCodec],
        profile: p4i.ActionProfile | None,
        ports: WatchedPorts,
        translations: Translations,
        *,
        is_counted: bool,
        meter: p4i.MeterSpec.Type.ValueType | None,
    ) -> None:
        self.info = info
        self.id, self.name = info.preamble.id, info.preamble.name
        self.installed = installed
        self.profile = profile
        self.is_counted = is_counted
        self.meter = meter
        self._ports = ports
        keys = installed.table.keys
        if len(keys) != len(info.match_fields):
            raise invalid(
                f"table {self.name} has {len(info.match_fields)} key fields in the P4Info, "
                f"{len(keys)} in the device config"
            )
        self._fields = tuple(
            MatchField.of(
                field,
                key,
                self.name,
                translations,
                partial(number_text, installed.program, key.target, key.width),
            )
            for field, key in zip(info.match_fields, keys, strict=True)
        )
        self._slots = {
            field.id: (position, field, DECODERS[field.kind]) for position, field in enumerate(self._fields)
        }
        self._dont_care = tuple(field.dont_care for field in self._fields)
        self._needed = sum(1 << n for n, match in enumerate(self._dont_care) if match is None)
        self.is_prioritized = any(field.kind in PRIORITIZED_KINDS for field in self._fields)
        self._actions = {
            ref.id: (actions[ref.id], ref.scope) for ref in info.action_refs if ref.id in actions
        }
        self._actions_by_name = {codec.name: codec for codec, _ in self._actions.values()}

    def require_counter(self) -> None:
        """Check that its entries have counters, else raise INVALID_ARGUMENT."""
        if not self.is_counted:
            raise invalid(f"table {self.name} has no direct counter")

    def require_meter(self) -> p4i.MeterSpec.Type.ValueType:
        """Return the type of its entries' meters, or raise INVALID_ARGUMENT if there are none."""
        if self.meter is None:
            raise invalid(f"table {self.name} has no direct meter")
        return self.meter

    @property
    def fields(self) -> tuple[MatchField, ...]:
        """Return the fields of its key, in the order of P4Info."""
        return self._fields

    # Keys

    def require_same_key(self, previous: P4InfoTable) -> None:
        """Check that the key has the fields of a previous pipeline's table; it may have others besides.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if one of them is another field now, or has another width.
        """
        now = {field.id: field for field in self.info.match_fields}
        for field in previous.info.match_fields:
            after = now.get(field.id)
            if after is not None and _described(after) != _described(field):
                raise invalid(
                    f"the forwarding state cannot be kept: table {self.name} has entries, and their key field "
                    f"{field.id} was {_described(field)}, but would be {_described(after)}"
                )

    def present(self, key: EntryKey) -> Entry:
        """Return the entry with a key, or raise NOT_FOUND."""
        entry = self.installed.entry(key)
        if entry is None:
            entries = self.installed.entries() if self.is_prioritized else ()
            same = [e.key.priority for e in entries if e.key.match == key.match]
            other = f"; there is one with priority {', '.join(map(str, same))}" if same else ""
            raise not_found(f"table {self.name} has no entry for {self.key_text(key)}{other}")
        return entry

    def insert(self, entry: Entry) -> None:
        """Add an entry to the engine's table."""
        try:
            self.installed.insert(entry)
        except TableError as error:
            if error.code is not TableErrorCode.ALREADY_EXISTS:
                raise
            raise P4RuntimeError(
                StatusCode.ALREADY_EXISTS,
                f"table {self.name} has an entry for {self.key_text(entry.key)} already: MODIFY it, or DELETE it first",
            ) from None

    def key_text(self, key: EntryKey) -> str:
        """Format a key for a message, with the names and values of the control plane."""
        parts = zip(self.info.match_fields, self._fields, key.match, strict=True)
        return key_text(
            {info.name: match_text(match, field.text) for info, field, match in parts}, key.priority
        )

    def key_of(self, message: p4r.TableEntry) -> EntryKey | None:
        """Return the key of an existing entry, or raise NOT_FOUND."""
        if not message.is_default_action:
            return self.present(self.decode_key(message)).key
        if message.match or message.priority:
            raise invalid(
                f"table {self.name}: the default entry has neither match fields nor a priority: leave both unset"
            )
        return None

    def keys_of(self, query: p4r.TableEntry) -> Sequence[EntryKey | None]:
        """Return the keys that a query selects: a single one (NOT_FOUND without an entry), or those of all entries."""
        if query.match or query.is_default_action:
            return [self.key_of(query)]
        return [entry.key for entry in self.installed.entries()]

    def encode_key(self, key: EntryKey | None) -> p4r.TableEntry:
        """Encode a table entry that has nothing but its key."""
        if key is None:
            return p4r.TableEntry(table_id=self.id, is_default_action=True)
        return p4r.TableEntry(table_id=self.id, priority=key.priority, match=self.encode_match(key.match))

    def encode_match(self, match: tuple[Match, ...]) -> list[p4r.FieldMatch]:
        """Encode the match fields of a key, without those that match anything."""
        encoded = [field.encode(part) for field, part in zip(self._fields, match, strict=True)]
        return [part for part in encoded if part is not None]

    def decode_key(self, message: p4r.TableEntry) -> EntryKey:
        """Decode the key of an entry with match fields, or raise INVALID_ARGUMENT."""
        match, priority = self.decode_match(message), message.priority
        if self.is_prioritized and priority <= 0:
            raise invalid(f"table {self.name} has overlapping matches: an entry needs a priority above 0")
        if priority and not self.is_prioritized:
            raise invalid(f"table {self.name} has only exact and lpm matches: leave the priority unset")
        return EntryKey(match, priority)

    def decode_match(self, message: p4r.TableEntry) -> tuple[Match, ...]:
        """Decode the match of each key field, or raise INVALID_ARGUMENT."""
        slots = self._slots
        matches = list(self._dont_care)
        given = 0  # a bit for each field
        for field_message in message.match:
            slot = slots.get(field_message.field_id)
            if slot is None:
                raise invalid(
                    f"table {self.name} has no key field {field_message.field_id}, only {self._key_text()}"
                )
            position, field, decode = slot
            if given >> position & 1:
                raise invalid(f"{field.name} is given more than once (field {field.id})")
            given |= 1 << position
            matches[position] = decode(field_message, field)
        if needed := self._needed & ~given:
            field = next(field for n, field in enumerate(self._fields) if needed >> n & 1)
            raise invalid(f"{field.name}: an exact match needs a value (field {field.id})")
        return tuple(matches)  # type: ignore[arg-type]

    def _key_text(self) -> str:
        return listed({field.id: field.name for field in self.info.match_fields})

    # Actions

    def action_name(self, action_id: int) -> str:
        """Return the name of one of its actions, or raise INVALID_ARGUMENT."""
        return self._action(action_id)[0].name

    def encode_call(self, call: ActionCall) -> p4r.Action:
        """Encode a call of one of its actions."""
        return self._actions_by_name[call.name].encode(call)

    def decode_action(self, message: p4r.TableAction, *, default: bool) -> EntryAction | None:
        """Decode the action of an entry, or of the default entry.

        Returns:
            The action, or None if none is given.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT or PERMISSION_DENIED.
        """
        kind = message.WhichOneof("type")
        if kind is None:
            return None
        if (kind == "action") == (self.profile is not None) and not (default and kind == "action"):
            how = "directly" if self.profile is None else "by an action profile's members or groups"
            raise invalid(f"table {self.name} takes actions {how}, not by {kind}")
        chooses = kind in ("action_profile_group_id", "action_profile_action_set")
        if chooses and self.profile is not None and not self.profile.with_selector:
            raise invalid(f"table {self.name}: its profile has no selector: name a member, not {kind}")
        match kind:
            case "action_profile_member_id":
                return MemberReference(message.action_profile_member_id)
            case "action_profile_group_id":
                return GroupReference(message.action_profile_group_id)
            case "action_profile_action_set":
                return self.decode_action_set(message.action_profile_action_set)
        return self._decode_call(message.action, default=default)

    def decode_action_set(self, message: p4r.ActionProfileActionSet) -> OneShot:
        """Decode a group that belongs to one entry. Actions whose ports are down now have weight 0."""
        assert self.profile is not None
        what, items = f"table {self.name}", message.action_profile_actions
        if not items:
            raise invalid(f"{what}: an action set needs an action")
        if message.action_selection_mode not in p4r.ActionProfileActionSet.ActionSelectionMode.values():
            raise invalid(f"{what}: there is no action_selection_mode {message.action_selection_mode}")
        if message.size_semantics not in p4r.ActionProfileActionSet.SizeSemantics.values():
            raise invalid(f"{what}: there are no size_semantics {message.size_semantics}")
        weights = check_weights(
            self.profile,
            [item.weight for item in items],
            self.profile.max_group_size,
            what,
            by_members=_BY_MEMBERS.get(message.size_semantics),
        )
        choices = [
            (
                self._decode_call(item.action, default=False),
                0 if self._ports.skips(item, what) else weight,
            )
            for item, weight in zip(items, weights, strict=True)
        ]
        return OneShot(
            tuple(choices), random=message.action_selection_mode == p4r.ActionProfileActionSet.RANDOM
        )

    def _decode_call(self, message: p4r.Action, *, default: bool) -> ActionCall:
        codec, scope = self._action(message.action_id)
        if scope == (_TABLE_ONLY if default else _DEFAULT_ONLY):
            place = "a default action" if default else "the action of an entry"
            mark = "@tableonly" if default else "@defaultonly"
            raise denied(
                f"action {codec.name} cannot be {place} of table {self.name}: the program marks it {mark}"
            )
        return codec.decode(message)

    def _action(self, action_id: int) -> tuple[ActionCodec, int]:
        found = self._actions.get(action_id)
        if found is None:
            names = listed({codec.id: codec.name for codec, _ in self._actions.values()})
            raise invalid(f"table {self.name} has no action {action_id}, only {names}")
        return found


def _described(field: p4i.MatchField) -> str:
    """Describe a key field by its name, its width and the type that the control plane sees."""
    width = f"bit<{field.bitwidth}>" if field.bitwidth else "of no width"
    of_type = f" {field.type_name.name}" if field.HasField("type_name") else ""
    return f"{field.name} ({width}{of_type})"
