"""Multicast groups and mirroring sessions: numbered lists of replicas."""

from __future__ import annotations

from fanin.p4switch.engine import library
from fanin.p4switch.engine.library import MULTICAST_GROUPS, SESSIONS, runtime
from fanin.p4switch.engine.switch import RunningSwitch, locked
from fanin.p4switch.entries import DEFAULT_CLONE_OPTIONS, Clones, Replica, TableError, TableErrorCode

MAX_REPLICAS = 4096  # of a group, because all of them are made at once


class ReplicaGroups:
    """All multicast groups of a switch, or all its mirroring sessions.

    Methods raise TableError: ALREADY_EXISTS, NOT_FOUND, INVALID_ARGUMENT (a number or replica out of range),
    RESOURCE_EXHAUSTED.
    """

    def __init__(self, switch: RunningSwitch, *, sessions: bool) -> None:
        self._switch = switch
        self._sessions = sessions
        self._groups: dict[int, tuple[Replica, ...]] = {}

    @locked
    def insert(
        self, number: int, replicas: tuple[Replica, ...], clones: Clones = DEFAULT_CLONE_OPTIONS
    ) -> None:
        """Add a group."""
        if number in self._groups:
            raise TableError(TableErrorCode.ALREADY_EXISTS, f"{self._name(number)} exists")
        self._set(number, replicas, clones)

    @locked
    def modify(
        self, number: int, replicas: tuple[Replica, ...], clones: Clones = DEFAULT_CLONE_OPTIONS
    ) -> None:
        """Replace the replicas of a group, and the options of its clones."""
        self._known(number)
        self._set(number, replicas, clones)

    @locked
    def delete(self, number: int) -> None:
        """Remove a group."""
        self._known(number)
        runtime().switch_set_replicas(self._switch.base, self._sessions, number, -1, None, 0, 0)
        del self._groups[number]

    def all(self) -> dict[int, tuple[Replica, ...]]:
        """Return every group, by number."""
        return dict(self._groups)

    def _name(self, number: int) -> str:
        return f"{'mirroring session' if self._sessions else 'multicast group'} {number}"

    def _known(self, number: int) -> None:
        if number not in self._groups:
            raise TableError(TableErrorCode.NOT_FOUND, f"{self._name(number)} does not exist")

    def _set(self, number: int, replicas: tuple[Replica, ...], clones: Clones) -> None:
        least, most = (0, SESSIONS) if self._sessions else (1, MULTICAST_GROUPS)
        if not least <= number < most:
            raise TableError(
                TableErrorCode.INVALID_ARGUMENT, f"{self._name(number)} is not in {least}..{most - 1}"
            )
        if len(replicas) > MAX_REPLICAS:
            raise TableError(
                TableErrorCode.RESOURCE_EXHAUSTED,
                f"{self._name(number)}: {len(replicas)} replicas: a group has at most {MAX_REPLICAS}",
            )
        for replica in replicas:
            if not (0 <= replica.port < 1 << 32 and 0 <= replica.instance < 1 << 16):
                raise TableError(TableErrorCode.INVALID_ARGUMENT, f"{self._name(number)}: {replica}")
        packed = (library.Replica * len(replicas))(*(library.Replica(r.port, r.instance) for r in replicas))
        place = (self._switch.base, self._sessions, number, len(replicas), packed)
        if not runtime().switch_set_replicas(*place, clones.longest, clones.service_class):
            raise TableError(TableErrorCode.RESOURCE_EXHAUSTED, f"{self._name(number)}: out of memory")
        self._groups[number] = replicas
