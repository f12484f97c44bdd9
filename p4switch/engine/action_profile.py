"""Action profiles: members and groups of members, which entries of several tables may refer to."""

from __future__ import annotations

import weakref
from typing import Protocol

from fanin.p4switch.bmv2json.program import ActionProfile
from fanin.p4switch.engine.switch import RunningSwitch, locked
from fanin.p4switch.entries import (
    ActionCall,
    GroupReference,
    MemberReference,
    TableError,
    TableErrorCode,
)


class ProfileUser(Protocol):
    """Table whose entries may refer to members and groups."""

    def check_action(self, call: ActionCall) -> None:
        """Check that an action is one of the table's, with the right number of arguments."""

    def names(self, reference: MemberReference | GroupReference) -> bool:
        """Return whether an entry refers to this member or group."""

    def has_action_sets(self) -> bool:
        """Return whether entries have groups of their own."""

    def refresh(self) -> None:
        """Update entries after a change of a member or group."""


class ProfileState:
    """Members and groups of one action profile, for the entries of `tables`.

    If an entry has a group of its own, there can be no members (P4Runtime specification, "One Shot Action Selector
    Programming").

    Writes raise TableError: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, or FAILED_PRECONDITION for
    what is in use.
    """

    def __init__(self, switch: RunningSwitch, profile: ActionProfile) -> None:
        self.profile = profile
        self.members: dict[int, ActionCall] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}  # (member, weight)
        # Weak, because they refer to this object: the switch is freed as soon as nobody needs it.
        self.tables: weakref.WeakSet[ProfileUser] = weakref.WeakSet()
        self._switch = switch

    @locked
    def insert_member(self, number: int, call: ActionCall) -> None:
        """Add a member."""
        if number in self.members:
            raise self._error(TableErrorCode.ALREADY_EXISTS, f"member {number} exists")
        if len(self.members) >= self.profile.max_size:
            raise self._error(TableErrorCode.RESOURCE_EXHAUSTED, f"full: {self.profile.max_size} members")
        if any(table.has_action_sets() for table in self.tables):
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "entries with action sets exclude members")
        self._check(call)
        self.members[number] = call

    @locked
    def modify_member(self, number: int, call: ActionCall) -> None:
        """Replace the action of a member."""
        self.member(number)
        self._check(call)
        self.members[number] = call
        self._notify()

    @locked
    def delete_member(self, number: int) -> None:
        """Remove a member that no group or entry refers to."""
        self.member(number)
        if any(number == m for group in self.groups.values() for m, _ in group) or self._is_named(
            MemberReference(number)
        ):
            raise self._error(TableErrorCode.FAILED_PRECONDITION, f"member {number} is in use")
        del self.members[number]

    @locked
    def insert_group(self, number: int, members: tuple[tuple[int, int], ...]) -> None:
        """Add a group of (member, weight). A member with weight 0 is skipped."""
        if self.profile.selector is None:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no selector, so it takes no groups")
        if number in self.groups:
            raise self._error(TableErrorCode.ALREADY_EXISTS, f"group {number} exists")
        self._check_group(members)
        self.groups[number] = members

    @locked
    def modify_group(self, number: int, members: tuple[tuple[int, int], ...]) -> None:
        """Replace the members of a group."""
        self.group(number)
        self._check_group(members)
        self.groups[number] = members
        self._notify()

    @locked
    def delete_group(self, number: int) -> None:
        """Remove a group that no entry refers to."""
        self.group(number)
        if self._is_named(GroupReference(number)):
            raise self._error(TableErrorCode.FAILED_PRECONDITION, f"group {number} is in use")
        del self.groups[number]

    def member(self, number: int) -> ActionCall:
        """Return a member's action.

        Raises:
            TableError: NOT_FOUND.
        """
        if number not in self.members:
            raise self._error(TableErrorCode.NOT_FOUND, f"member {number} does not exist")
        return self.members[number]

    def group(self, number: int) -> list[ActionCall]:
        """Return a group's actions in the order of its members, each repeated according to its weight.

        Raises:
            TableError: NOT_FOUND.
        """
        if number not in self.groups:
            raise self._error(TableErrorCode.NOT_FOUND, f"group {number} does not exist")
        return [self.members[m] for m, weight in sorted(self.groups[number]) for _ in range(weight)]

    def check_one_shot(self) -> None:
        """Check that an entry may have an action set: the profile has no members."""
        if self.members:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "its members exclude entries with action sets")

    def _check(self, call: ActionCall) -> None:
        for table in self.tables:
            table.check_action(call)

    def _check_group(self, members: tuple[tuple[int, int], ...]) -> None:
        for member, weight in members:
            self.member(member)
            if not 0 <= weight <= 1 << 16:
                raise self._error(
                    TableErrorCode.INVALID_ARGUMENT, f"member {member}: weight {weight} is not in 0..65536"
                )
        if len({m for m, _ in members}) != len(members):
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "a member is in a group twice")

    def _notify(self) -> None:
        for table in self.tables:
            table.refresh()

    def _is_named(self, reference: MemberReference | GroupReference) -> bool:
        return any(table.names(reference) for table in self.tables)

    def _error(self, code: TableErrorCode, message: str) -> TableError:
        return TableError(code, f"action profile {self.profile.name}: {message}")
