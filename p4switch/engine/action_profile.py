"""Action profiles: members and groups of them, which the entries of several tables may name."""

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
    """A table whose entries may name members and groups."""

    def check_action(self, call: ActionCall) -> None:
        """Refuses what is not an action of the table, or has other arguments."""

    def names(self, reference: MemberReference | GroupReference) -> bool:
        """Whether an entry names this member or group."""

    def has_action_sets(self) -> bool:
        """Whether entries have groups of their own."""

    def refresh(self) -> None:
        """Follows a change of a member or group."""


class ProfileState:
    """The members and groups of one action profile, for the entries of `tables`.

    Where an entry has a group of its own, there are no members (P4Runtime specification, "One Shot Action Selector
    Programming").

    Writes raise TableError: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT, RESOURCE_EXHAUSTED, or FAILED_PRECONDITION for
    what is in use.
    """

    def __init__(self, switch: RunningSwitch, profile: ActionProfile) -> None:
        self.profile = profile
        self.members: dict[int, ActionCall] = {}
        self.groups: dict[int, tuple[tuple[int, int], ...]] = {}  # (member, weight)
        # Weak, as they refer to this object: the switch is freed as soon as nobody needs it.
        self.tables: weakref.WeakSet[ProfileUser] = weakref.WeakSet()
        self._switch = switch

    @locked
    def insert_member(self, number: int, call: ActionCall) -> None:
        """Adds a member."""
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
        """Gives a member another action."""
        self.member(number)
        self._check(call)
        self.members[number] = call
        self._notify()

    @locked
    def delete_member(self, number: int) -> None:
        """Removes a member that nothing names."""
        self.member(number)
        if any(number == m for group in self.groups.values() for m, _ in group) or self._is_named(
            MemberReference(number)
        ):
            raise self._error(TableErrorCode.FAILED_PRECONDITION, f"member {number} is in use")
        del self.members[number]

    @locked
    def insert_group(self, number: int, members: tuple[tuple[int, int], ...]) -> None:
        """Adds a group of (member, weight); a member whose weight is 0 is skipped."""
        if self.profile.selector is None:
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "it has no selector, so it takes no groups")
        if number in self.groups:
            raise self._error(TableErrorCode.ALREADY_EXISTS, f"group {number} exists")
        self._check_group(members)
        self.groups[number] = members

    @locked
    def modify_group(self, number: int, members: tuple[tuple[int, int], ...]) -> None:
        """Replaces the members of a group."""
        self.group(number)
        self._check_group(members)
        self.groups[number] = members
        self._notify()

    @locked
    def delete_group(self, number: int) -> None:
        """Removes a group that no entry names."""
        self.group(number)
        if self._is_named(GroupReference(number)):
            raise self._error(TableErrorCode.FAILED_PRECONDITION, f"group {number} is in use")
        del self.groups[number]

    def member(self, number: int) -> ActionCall:
        """A member's action.

        Raises:
            TableError: NOT_FOUND.
        """
        if number not in self.members:
            raise self._error(TableErrorCode.NOT_FOUND, f"member {number} does not exist")
        return self.members[number]

    def group(self, number: int) -> list[ActionCall]:
        """A group's actions in the order of its members, each as often as its weight says.

        Raises:
            TableError: NOT_FOUND.
        """
        if number not in self.groups:
            raise self._error(TableErrorCode.NOT_FOUND, f"group {number} does not exist")
        return [self.members[m] for m, weight in sorted(self.groups[number]) for _ in range(weight)]

    def check_one_shot(self) -> None:
        """Refuses an action set where there are members."""
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
            raise self._error(TableErrorCode.INVALID_ARGUMENT, "a member stands twice in a group")

    def _notify(self) -> None:
        for table in self.tables:
            table.refresh()

    def _is_named(self, reference: MemberReference | GroupReference) -> bool:
        return any(table.names(reference) for table in self.tables)

    def _error(self, code: TableErrorCode, message: str) -> TableError:
        return TableError(code, f"action profile {self.profile.name}: {message}")
