"""Action profiles and value sets over P4Runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import grpc

from p4switch.engine.engine import Engine
from p4switch.engine.entries import EntryKey, Lpm, Match, Ternary
from p4switch.p4runtime.codec.actions import ActionCodec
from p4switch.p4runtime.codec.matches import MatchField
from p4switch.p4runtime.codec.translation import Translations
from p4switch.p4runtime.errors import P4RuntimeError, invalid, not_found
from p4switch.p4runtime.proto import p4i, p4r
from p4switch.p4runtime.watch import WatchedPorts, watches

_HEAVIEST = 1 << 16


class ActionProfile:
    """One action profile or selector (specification, "ActionProfileMember & ActionProfileGroup").

    `members` and `groups` take the messages of either kind; groups are kept as messages, since a read returns what was
    written. `actions` are those of the pipeline, by id.
    """

    def __init__(
        self,
        profile: p4i.ActionProfile,
        actions: Mapping[int, ActionCodec],
        ports: WatchedPorts,
        engine: Engine,
    ) -> None:
        self.id = profile.preamble.id
        self.name = profile.preamble.name
        self.engine = engine
        self.actions = actions
        self.ports = ports
        self.names = {codec.name: codec for codec in actions.values()}
        self.info = profile
        self.members = _Members(self)
        self.groups = _Groups(self)


class _Members:
    def __init__(self, profile: ActionProfile) -> None:
        self._profile = profile

    def insert(self, message: p4r.ActionProfileMember) -> None:
        """Add a member."""
        call = self._codec(message.action.action_id).decode(message.action)
        state = self._profile.engine.profile(self._profile.name)
        state.insert_member(_checked_id(message.member_id, "member"), call)

    def modify(self, message: p4r.ActionProfileMember) -> None:
        """Give a member another action."""
        call = self._codec(message.action.action_id).decode(message.action)
        state = self._profile.engine.profile(self._profile.name)
        state.modify_member(message.member_id, call)

    def delete(self, message: p4r.ActionProfileMember) -> None:
        """Remove a member."""
        state = self._profile.engine.profile(self._profile.name)
        state.delete_member(message.member_id)

    def read(self, query: p4r.ActionProfileMember) -> Iterator[p4r.ActionProfileMember]:
        """One member, NOT_FOUND if there is none; or every member where the id is 0."""
        state = self._profile.engine.profile(self._profile.name)
        members = dict(state.members)
        if query.member_id and query.member_id not in members:
            raise not_found(f"action profile {self._profile.name} has no member {query.member_id}")
        for number, call in members.items():
            if query.member_id in (0, number):
                yield p4r.ActionProfileMember(
                    action_profile_id=self._profile.id,
                    member_id=number,
                    action=self._profile.names[call.name].encode(call),
                )

    def _codec(self, action_id: int) -> ActionCodec:
        if action_id not in self._profile.actions:
            raise invalid(f"the pipeline has no action with the id {action_id:#x}")
        return self._profile.actions[action_id]


class _Groups:
    def __init__(self, profile: ActionProfile) -> None:
        self._profile = profile
        self._messages: dict[int, p4r.ActionProfileGroup] = {}

    def insert(self, message: p4r.ActionProfileGroup) -> None:
        """Add a group."""
        members = self._decode(message)
        state = self._profile.engine.profile(self._profile.name)
        state.insert_group(_checked_id(message.group_id, "group"), members)
        self._keep(message)

    def modify(self, message: p4r.ActionProfileGroup) -> None:
        """Replace a group's members; its maximal size stays."""
        present = self._messages.get(message.group_id)
        if present is not None and message.max_size != present.max_size:
            raise invalid(f"group {message.group_id}: max_size cannot be changed from {present.max_size}")
        members = self._decode(message)
        state = self._profile.engine.profile(self._profile.name)
        state.modify_group(message.group_id, members)
        self._keep(message)

    def delete(self, message: p4r.ActionProfileGroup) -> None:
        """Remove a group."""
        state = self._profile.engine.profile(self._profile.name)
        state.delete_group(message.group_id)
        self._messages.pop(message.group_id, None)

    def read(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.ActionProfileGroup]:
        """One group, NOT_FOUND if there is none; or every group where the id is 0."""
        if query.group_id == 0:
            yield from list(self._messages.values())
        elif query.group_id in self._messages:
            yield self._messages[query.group_id]
        else:
            raise not_found(f"action profile {self._profile.name} has no group {query.group_id}")

    def watch(self) -> None:
        """Passes over the members whose ports are down now."""
        for message in self._messages.values():
            if any(map(watches, message.members)):
                state = self._profile.engine.profile(self._profile.name)
                state.modify_group(message.group_id, self._decode(message))

    def _decode(self, message: p4r.ActionProfileGroup) -> tuple[tuple[int, int], ...]:
        what, limit = f"group {message.group_id}", self._profile.info.max_group_size
        if message.max_size < 0 or (limit and not 0 < message.max_size <= limit):
            raise invalid(
                f"{what}: max_size {message.max_size} is not in 1..{limit}, the profile's max_group_size"
            )
        weights = check_weights(
            self._profile.info, [member.weight for member in message.members], message.max_size, what
        )
        passes_over = self._profile.ports.passes_over
        return tuple(
            (member.member_id, 0 if passes_over(member, what) else weight)
            for member, weight in zip(message.members, weights, strict=True)
        )

    def _keep(self, message: p4r.ActionProfileGroup) -> None:
        copy = p4r.ActionProfileGroup()
        copy.CopyFrom(message)
        self._messages[message.group_id] = copy


def check_weights(
    profile: p4i.ActionProfile,
    weights: Sequence[int],
    max_size: int,
    what: str,
    *,
    by_members: bool | None = None,
) -> Sequence[int]:
    """The weights in the data plane; INVALID_ARGUMENT unless their sum, or number, is at most `max_size` (0: any).

    Specification, "ActionProfile": the profile says whether members or their weights are counted, unless `by_members`
    does, and whether there may be weights at all; without them all weigh the same.
    """
    if profile.weights_disallowed:
        if any(weights):
            raise invalid(f"{what}: the profile {profile.preamble.name} has no weights: leave them unset")
        weights = [1] * len(weights)
    if by_members is None:
        by_members = profile.WhichOneof("selector_size_semantics") == "sum_of_members"
    heaviest = profile.sum_of_members.max_member_weight if by_members else 0
    for weight in weights:
        if weight <= 0 or (heaviest and weight > heaviest):
            raise invalid(f"{what}: the weight {weight} is not in 1..{heaviest or _HEAVIEST}")
        if weight > _HEAVIEST:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{what}: weights are at most {_HEAVIEST} here, not {weight}",
            )
    size = len(weights) if by_members else sum(weights)
    if max_size and size > max_size:
        counted = "members" if by_members else "weights"
        raise invalid(f"{what}: {counted} of {size} in all are above its size, {max_size}")
    return weights


class ValueSet:
    """A parser value set (specification, "ValueSetEntry"). BMv2's server does not have them."""

    def __init__(self, info: p4i.ValueSet, engine: Engine, translations: Translations) -> None:
        self.id = info.preamble.id
        self.name = info.preamble.name
        self._engine = engine
        keys = engine.program.value_sets[self.name].table.keys
        if len(keys) != len(info.match):
            raise invalid(
                f"value set {self.name} has {len(info.match)} fields in the P4Info, {len(keys)} here"
            )
        self._fields = tuple(
            MatchField.of_value_set(match, key.width, self.name, translations)
            for match, key in zip(info.match, keys, strict=True)
        )
        self._members: list[p4r.ValueSetMember] = []

    def modify(self, message: p4r.ValueSetEntry) -> None:
        """Replace all members."""
        keys = [EntryKey(tuple(self._decode(member)), 1) for member in message.members]
        self._engine.value_set(self.name).write(keys)
        copy = p4r.ValueSetEntry()
        copy.CopyFrom(message)
        self._members = list(copy.members)

    def read(self, _query: p4r.ValueSetEntry) -> Iterator[p4r.ValueSetEntry]:
        """All members."""
        yield p4r.ValueSetEntry(value_set_id=self.id, members=self._members)

    def _decode(self, member: p4r.ValueSetMember) -> Iterator[Match]:
        given = {match.field_id: match for match in member.match}
        if len(given) < len(member.match) or not given.keys() <= {field.id for field in self._fields}:
            raise invalid(f"value set {self.name}: a member has unknown fields, or one more than once")
        for field in self._fields:
            match = field.decode(given[field.id]) if field.id in given else field.dont_care
            if match is None:
                raise invalid(f"{field.name}: an exact match needs a value (field {field.id})")
            if isinstance(match, Lpm):
                ones = (1 << field.width) - 1
                match = Ternary(match.value, ones & ~(ones >> match.prefix_length))
            yield match


def _checked_id(number: int, kind: str) -> int:
    if number == 0:
        raise invalid(f"0 is not a {kind} id: in a read it stands for all")
    return number
