"""Clone sessions (P4Runtime specification, "CloneSessionEntry")."""

from __future__ import annotations

from fanin.p4switch.engine.library import SESSIONS
from fanin.p4switch.engine.replicas import ReplicaGroups
from fanin.p4switch.entries import Clones
from fanin.p4switch.p4runtime.entities.replication import ReplicationKind
from fanin.p4switch.p4runtime.errors import invalid
from fanin.p4switch.p4runtime.proto import p4r


class CloneSessions(ReplicationKind[p4r.CloneSessionEntry]):
    """Clone sessions: the replicas of a clone, and its options."""

    field = "clone_session_entry"
    what = "clone session"
    number_field = "session_id"

    @property
    def _groups(self) -> ReplicaGroups:
        return self._engine.sessions

    def _checked_number(self, message: p4r.CloneSessionEntry) -> int:
        session = message.session_id
        if not 0 < session < SESSIONS:
            raise invalid(f"clone session {session} is not in 1..{SESSIONS - 1}")
        return session

    def _clones(self, message: p4r.CloneSessionEntry) -> Clones:
        name, service_class = self._name(message), message.class_of_service
        if service_class >= self._engine.priority_queues:
            raise invalid(
                f"{name}: class_of_service {service_class} needs a queue of that priority: "
                f"the ports have {self._engine.priority_queues} (--priority-queues)"
            )
        if message.packet_length_bytes < 0:
            raise invalid(f"{name}: packet_length_bytes {message.packet_length_bytes} is negative")
        if message.packet_length_bytes == 0:
            return Clones(service_class=service_class)
        return Clones(message.packet_length_bytes, service_class)
