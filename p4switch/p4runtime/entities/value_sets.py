"""Parser value sets (P4Runtime specification, "ValueSetEntry"). BMv2's server does not have them."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.native.text import counted
from fanin.p4switch.engine.value_sets import ValueSetState
from fanin.p4switch.entries import EntryKey, Lpm, Match, Ternary
from fanin.p4switch.p4runtime.codec.matches import MatchField
from fanin.p4switch.p4runtime.entities.kind import StaticKind
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4i, p4r


class _Members:
    """Members of one value set: their fields, and all members as they were written."""

    def __init__(self, info: p4i.ValueSet, objects: PipelineObjects) -> None:
        self.name = info.preamble.name
        self.state: ValueSetState = objects.engine.value_set(self.name)
        keys = objects.engine.program.value_sets[self.name].table.keys
        if len(keys) != len(info.match):
            raise invalid(
                f"value set {self.name} has {counted(len(info.match), 'field')} in the P4Info, {len(keys)} here"
            )
        self.fields = tuple(
            MatchField.of_value_set(match, key.width, self.name, objects.translations)
            for match, key in zip(info.match, keys, strict=True)
        )
        self.messages: list[p4r.ValueSetMember] = []


class ValueSets(StaticKind[p4r.ValueSetEntry]):
    """Value sets, each written and read with all its members."""

    field = "value_set_entry"
    id_field = "value_set_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._sets = objects.by_id(
            "value set",
            objects.p4info.value_sets,
            objects.engine.program.value_sets,
            lambda info: _Members(info, objects),
        )

    def modify(self, message: p4r.ValueSetEntry) -> None:
        """Replace all members."""
        members = self._sets.find(message.value_set_id)
        members.state.write([EntryKey(tuple(_decode(members, member)), 1) for member in message.members])
        copy = p4r.ValueSetEntry()
        copy.CopyFrom(message)
        members.messages = list(copy.members)

    def read(self, query: p4r.ValueSetEntry) -> Iterator[p4r.ValueSetEntry]:
        """Yield one set with all its members, or all sets."""
        for number, members in self._sets.select(query.value_set_id):
            yield p4r.ValueSetEntry(value_set_id=number, members=members.messages)

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.ValueSetEntry]]:
        """Yield all value sets."""
        for message in self.read(p4r.ValueSetEntry()):
            yield p4r.Update.MODIFY, message


def _decode(members: _Members, member: p4r.ValueSetMember) -> Iterator[Match]:
    given = {match.field_id: match for match in member.match}
    if len(given) < len(member.match) or not given.keys() <= {field.id for field in members.fields}:
        raise invalid(f"value set {members.name}: a member has unknown fields, or one more than once")
    for field in members.fields:
        match = field.decode(given[field.id]) if field.id in given else field.dont_care
        if match is None:
            raise invalid(f"{field.name}: an exact match needs a value (field {field.id})")
        if isinstance(match, Lpm):
            ones = (1 << field.width) - 1
            match = Ternary(match.value, ones & ~(ones >> match.prefix_length))
        yield match
