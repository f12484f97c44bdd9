"""The members of action profiles and selectors (P4Runtime specification, "ActionProfileMember")."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.p4switch.p4runtime.entities.kind import DynamicKind
from fanin.p4switch.p4runtime.errors import invalid, not_found
from fanin.p4switch.p4runtime.objects import PipelineObjects
from fanin.p4switch.p4runtime.proto import p4r


class ActionProfileMembers(DynamicKind[p4r.ActionProfileMember]):
    """Actions that table entries and groups refer to."""

    field = "action_profile_member"
    id_field = "action_profile_id"

    def __init__(self, objects: PipelineObjects) -> None:
        self._actions = objects.actions
        self._constraints = objects.constraints
        self._names = {codec.name: codec for codec in objects.actions.values()}
        engine = objects.engine
        self._profiles = objects.by_id(
            "action profile",
            objects.p4info.action_profiles,
            engine.program.profiles,
            lambda info: engine.profile(info.preamble.name),
        )

    def insert(self, message: p4r.ActionProfileMember) -> None:
        """Add a member."""
        profile = self._profiles.find(message.action_profile_id)
        call = self._actions.find(message.action.action_id).decode(message.action)
        if message.member_id == 0:
            raise invalid("0 is not a member id: in a read it stands for all")
        self._constraints.check_action(call)
        profile.insert_member(message.member_id, call)
        self._constraints.member_added(call)

    def modify(self, message: p4r.ActionProfileMember) -> None:
        """Replace the action of a member."""
        profile = self._profiles.find(message.action_profile_id)
        call = self._actions.find(message.action.action_id).decode(message.action)
        before = profile.member(message.member_id)
        self._constraints.check_action(call)
        profile.modify_member(message.member_id, call)
        self._constraints.member_removed(before)
        self._constraints.member_added(call)

    def delete(self, message: p4r.ActionProfileMember) -> None:
        """Remove a member."""
        profile = self._profiles.find(message.action_profile_id)
        before = profile.members.get(message.member_id)
        profile.delete_member(message.member_id)
        if before is not None:
            self._constraints.member_removed(before)

    def read(self, query: p4r.ActionProfileMember) -> Iterator[p4r.ActionProfileMember]:
        """Yield one member, or raise NOT_FOUND; yield every member if the id is 0."""
        for number, profile in self._profiles.select(query.action_profile_id):
            members = dict(profile.members)
            if query.member_id and query.member_id not in members:
                raise not_found(f"action profile {profile.profile.name} has no member {query.member_id}")
            for member, call in members.items():
                if query.member_id in (0, member):
                    yield p4r.ActionProfileMember(
                        action_profile_id=number,
                        member_id=member,
                        action=self._names[call.name].encode(call),
                    )

    def export(self) -> Iterator[tuple[p4r.Update.Type.ValueType, p4r.ActionProfileMember]]:
        """Yield all members."""
        for message in self.read(p4r.ActionProfileMember()):
            yield p4r.Update.INSERT, message
