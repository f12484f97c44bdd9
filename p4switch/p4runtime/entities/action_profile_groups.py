"""The groups of action selectors (P4Runtime specification, "ActionProfileGroup")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.engine.action_profile import ProfileState
from fanin.p4switch.p4runtime.codec.watch import watches
from fanin.p4switch.p4runtime.codec.weights import check_weights
from fanin.p4switch.p4runtime.entities.kind import DynamicKind
from fanin.p4switch.p4runtime.errors import invalid, not_found
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4i, p4r


class _Selector:
    """Selector: its description in P4Info, and its groups as they were written, because reads return that."""

    def __init__(self, info: p4i.ActionProfile, state: ProfileState) -> None:
        self.info = info
        self.state = state
        self.messages: dict[int, p4r.ActionProfileGroup] = {}

    def keep(self, message: p4r.ActionProfileGroup) -> None:
        copy = p4r.ActionProfileGroup()
        copy.CopyFrom(message)
        self.messages[message.group_id] = copy


class ActionProfileGroups(DynamicKind[p4r.ActionProfileGroup]):
    """Groups of weighted members, one of which a packet's hash selects."""

    field = "action_profile_group"
    id_field = "action_profile_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._ports = objects.ports
        engine = objects.engine
        self._selectors = objects.by_id(
            "action profile",
            objects.p4info.action_profiles,
            engine.program.profiles,
            lambda info: _Selector(info, engine.profile(info.preamble.name)),
        )

    def insert(self, message: p4r.ActionProfileGroup) -> None:
        """Add a group."""
        selector = self._selectors.find(message.action_profile_id)
        members = self._decode(selector, message)
        if message.group_id == 0:
            raise invalid("0 is not a group id: in a read it stands for all")
        selector.state.insert_group(message.group_id, members)
        selector.keep(message)

    def modify(self, message: p4r.ActionProfileGroup) -> None:
        """Replace a group's members. Its maximal size cannot change."""
        selector = self._selectors.find(message.action_profile_id)
        present = selector.messages.get(message.group_id)
        if present is not None and message.max_size != present.max_size:
            raise invalid(f"group {message.group_id}: max_size cannot be changed from {present.max_size}")
        selector.state.modify_group(message.group_id, self._decode(selector, message))
        selector.keep(message)

    def delete(self, message: p4r.ActionProfileGroup) -> None:
        """Remove a group."""
        selector = self._selectors.find(message.action_profile_id)
        selector.state.delete_group(message.group_id)
        selector.messages.pop(message.group_id, None)

    def read(self, query: p4r.ActionProfileGroup) -> Iterator[p4r.ActionProfileGroup]:
        """Yield one group, or raise NOT_FOUND; yield every group if the id is 0."""
        for _, selector in self._selectors.select(query.action_profile_id):
            if query.group_id == 0:
                yield from list(selector.messages.values())
            elif query.group_id in selector.messages:
                yield selector.messages[query.group_id]
            else:
                raise not_found(f"action profile {selector.info.preamble.name} has no group {query.group_id}")

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.ActionProfileGroup]]:
        """Yield all groups."""
        for message in self.read(p4r.ActionProfileGroup()):
            yield p4r.Update.INSERT, message

    def follow_ports(self) -> None:
        """Skip the members whose ports are down now."""
        for selector in self._selectors.values():
            for message in selector.messages.values():
                if any(map(watches, message.members)):
                    selector.state.modify_group(message.group_id, self._decode(selector, message))

    def _decode(self, selector: _Selector, message: p4r.ActionProfileGroup) -> tuple[tuple[int, int], ...]:
        """Return the members and their weights, 0 for those that are skipped."""
        what, limit = f"group {message.group_id}", selector.info.max_group_size
        if message.max_size < 0 or (limit and not 0 < message.max_size <= limit):
            raise invalid(
                f"{what}: max_size {message.max_size} is not in 1..{limit}, the profile's max_group_size"
            )
        weights = check_weights(
            selector.info, [member.weight for member in message.members], message.max_size, what
        )
        return tuple(
            (member.member_id, 0 if self._ports.skips(member, what) else weight)
            for member, weight in zip(message.members, weights, strict=True)
        )
