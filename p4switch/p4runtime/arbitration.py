"""Client arbitration: which controller is the primary of a role, and who is notified of changes.

P4Runtime specification, "Client Arbitration and Controller Replication". Nothing here depends on gRPC: a
client is a queue of messages. Not thread-safe: the service's lock guards it.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from queue import SimpleQueue

import grpc

from fanin.p4switch.p4runtime.errors import P4RuntimeError, denied, invalid, not_found
from fanin.p4switch.p4runtime.proto import p4r, rpc_status
from fanin.p4switch.p4runtime.roles import RoleAccess

_MAX_QUEUED_PACKETS = 8192
_MAX_QUEUED_BYTES = 16 << 20
_MAX_NOTICES = 4352  # messages that must not be lost
_MAX_ROLE_BYTES = 64 << 10  # of a role's name and config
_MAX_ROLES = 32  # roles with a client, besides the default one: fewer than there may be streams
_MAX_ROLES_LEFT = 64  # roles without a client whose highest election id and config are remembered

_log = logging.getLogger(__name__)

Outgoing = p4r.StreamMessageResponse | P4RuntimeError | None


@dataclass(eq=False)
class Client:
    """Stream of a controller: the messages to send on it (an error or None ends it), its role, its host's address."""

    address: str = ""
    role: _Role | None = None
    election_id: int | None = None
    has_left: bool = False
    is_ending: bool = False
    lost: int = 0  # packets that found no room since the stream was opened
    _losing: int = 0  # of them, those since the controller kept up
    _bytes: int = 0  # of the messages that wait
    _notices: int = 0  # of them, those that must not be lost
    outbox: SimpleQueue[Outgoing] = field(default_factory=SimpleQueue)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: p4r.StreamMessageResponse) -> None:
        """Send a message that must not be lost: a controller that leaves too many unread loses its stream instead."""
        with self._lock:
            has_room = self._notices < _MAX_NOTICES
            self._notices += has_room
        if has_room:
            self.put(message)
        else:
            self.end(f"the controller does not read its stream: {_MAX_NOTICES:,} messages wait")

    def end(self, reason: str) -> None:
        """End the stream with RESOURCE_EXHAUSTED, behind the messages that wait."""
        if not self.is_ending:
            self.is_ending = True
            _log.warning("the stream of a controller is ended: %s", reason)
            self.put(P4RuntimeError(grpc.StatusCode.RESOURCE_EXHAUSTED, reason))

    def offer(self, message: p4r.StreamMessageResponse) -> None:
        """Send a message that may be lost. Packets are lost if a controller does not keep up."""
        with self._lock:
            found = 0
            if self.outbox.qsize() < _MAX_QUEUED_PACKETS and self._bytes < _MAX_QUEUED_BYTES:
                if self._losing and self.outbox.qsize() < _MAX_QUEUED_PACKETS // 2:  # it has caught up
                    self._losing, found = 0, self._losing
            else:
                self.lost += 1
                self._losing += 1
                found = -self._losing
        if found >= 0:
            self.put(message)
            if found:
                _log.warning("%d packets to a controller were lost, %d since it connected", found, self.lost)
        elif found == -1:
            _log.warning("packets to a controller are being lost: it does not keep up")

    def put(self, message: Outgoing) -> None:
        """Add a message to those that wait."""
        with self._lock:
            self._bytes += _size(message)
        self.outbox.put(message)

    def take(self) -> Outgoing:
        """Return the message that has waited longest, or wait for one."""
        message = self.outbox.get()
        with self._lock:
            self._bytes -= _size(message)
            self._notices -= _is_notice(message)
        return message


def _size(message: Outgoing) -> int:
    return message.ByteSize() if isinstance(message, p4r.StreamMessageResponse) else 0


def _is_notice(message: Outgoing) -> bool:
    return isinstance(message, p4r.StreamMessageResponse) and message.HasField("arbitration")


@dataclass(eq=False)
class _Role:
    name: str
    clients: list[Client] = field(default_factory=list)
    # the highest election id ever seen; only the client that has it can be primary
    highest: int | None = None
    access: RoleAccess = field(init=False)  # as the last primary configured it

    def __post_init__(self) -> None:
        self.access = RoleAccess(name=self.name)

    @property
    def primary(self) -> Client | None:
        if self.highest is None:
            return None
        return next((client for client in self.clients if client.election_id == self.highest), None)


class Arbitration:
    """Roles of one device and their clients.

    The default role "" always exists. The others are remembered for a while after they were left, the latest ones
    longest.
    """

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._roles = {"": _Role("")}

    def update(self, client: Client, message: p4r.MasterArbitrationUpdate) -> None:
        """Handle a client's arbitration message, its first or a later one. An error ends the client's stream.

        Raises:
            P4RuntimeError: NOT_FOUND, INVALID_ARGUMENT or FAILED_PRECONDITION, as the specification lists them;
                RESOURCE_EXHAUSTED for one role too many.
        """
        if client.has_left:
            return
        self._check_device(client, message.device_id)
        if message.role.ByteSize() > _MAX_ROLE_BYTES:
            raise invalid(
                f"a role, its name and config, has at most {_MAX_ROLE_BYTES:,} bytes, not {message.role.ByteSize():,}"
            )
        role = self._role_of(client, message.role)
        access = self._access(role, message.role)
        election_id = _election_id(message)
        if self.is_used(client, message):
            raise invalid(
                f"Election id {election_id} is already used by another client of role {role.name!r}"
            )
        was_primary = client is role.primary
        if client.role is None:
            if role.name and not role.clients:
                self._require_room_for_a_role()
            client.role = role
            role.clients.append(client)
            self._roles[role.name] = role
        client.election_id = election_id
        if election_id is not None and (role.highest is None or election_id >= role.highest):
            role.highest = election_id
            role.access = access
        if was_primary or client is role.primary:
            self._announce(role)
        else:
            self._notify(role, client)

    def is_used(self, client: Client, message: p4r.MasterArbitrationUpdate) -> bool:
        """Return whether another live client of the role has the election id that a client asks for."""
        role = self._roles.get(message.role.name)
        election_id = _election_id(message)
        return (
            role is not None
            and election_id is not None
            and any(other.election_id == election_id for other in role.clients if other is not client)
        )

    def leave(self, client: Client) -> None:
        """Handle the end of a client's stream. If it was the primary, tell the others that there is none now."""
        if client.has_left:
            return
        client.has_left = True
        role = client.role
        if role is None:
            return
        was_primary = client is role.primary
        role.clients.remove(client)
        if was_primary:
            self._announce(role)
        if not role.clients and role.name:
            self._roles[role.name] = self._roles.pop(role.name)  # after those that were left before
            left = [other.name for other in self._roles.values() if not other.clients and other.name]
            for name in left[:-_MAX_ROLES_LEFT]:
                del self._roles[name]

    def primaries(self) -> dict[Client, RoleAccess]:
        """Return the primary of each role that has one. It receives the packets and notifications of its role."""
        return {role.primary: role.access for role in self._roles.values() if role.primary is not None}

    def access(self, role: str) -> RoleAccess:
        """Return what a role may read: everything if nobody has configured it."""
        return self._roles[role].access if role in self._roles else RoleAccess(name=role)

    def require_primary(
        self, request: p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest
    ) -> RoleAccess:
        """Check that a request comes from the primary of its role, and return what the role may do.

        Raises:
            P4RuntimeError: PERMISSION_DENIED if the request's election id is not the primary's;
                NOT_FOUND if there is no such role.
        """
        role = self._roles.get(request.role)
        if role is None:
            raise not_found(f"the device has no role {request.role!r}")
        if role.primary is None or _election_id(request) != role.highest:
            raise denied(
                "Not primary: only the client whose StreamChannel has the highest election id may write; "
                + _why_not(_election_id(request), role.highest)
            )
        return role.access

    def _require_room_for_a_role(self) -> None:
        in_use = sum(1 for role in self._roles.values() if role.name and role.clients)
        if in_use >= _MAX_ROLES:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{_MAX_ROLES} roles besides the default one have controllers: end those of one of them first",
            )

    def _check_device(self, client: Client, device_id: int) -> None:
        if device_id == self._device_id:
            return
        if client.role is not None:
            raise P4RuntimeError(
                grpc.StatusCode.FAILED_PRECONDITION, "the device of a stream cannot be changed"
            )
        raise not_found(f"there is no device {device_id} here, only {self._device_id}")

    def _role_of(self, client: Client, message: p4r.Role) -> _Role:
        if client.role is not None and client.role.name != message.name:
            raise P4RuntimeError(
                grpc.StatusCode.FAILED_PRECONDITION, "the role of a stream cannot be changed"
            )
        return self._roles.get(message.name) or _Role(message.name)

    def _access(self, role: _Role, message: p4r.Role) -> RoleAccess:
        if not message.HasField("config"):
            return RoleAccess(name=role.name)
        if not role.name:
            raise invalid("the default role has full pipeline access: give a role with a config a name")
        access = RoleAccess(message.config, role.name)
        for other in self._roles.values():
            conflict = access.conflict(other.access) if other is not role else None
            if conflict is not None:
                raise invalid(
                    f"the id {conflict:#x} is exclusive to one of the roles {role.name!r} and {other.name!r}"
                )
        return access

    def _announce(self, role: _Role) -> None:
        _log.info("primary of role %r: %s", role.name, "none" if role.primary is None else role.highest)
        self._notify(role, *role.clients)

    def _notify(self, role: _Role, *clients: Client) -> None:
        primary = role.primary
        for client in clients:
            if client is primary:
                status = rpc_status.Status(code=grpc.StatusCode.OK.value[0], message="Is primary")
            elif primary is not None:
                status = rpc_status.Status(code=grpc.StatusCode.ALREADY_EXISTS.value[0], message="Is backup")
            else:
                status = rpc_status.Status(
                    code=grpc.StatusCode.NOT_FOUND.value[0], message="There is no primary"
                )
            update = p4r.MasterArbitrationUpdate(device_id=self._device_id, status=status)
            if role.name:
                update.role.name = role.name
            if role.access.config is not None:
                update.role.config.CopyFrom(role.access.config)
            if role.highest is not None:
                update.election_id.high, update.election_id.low = divmod(role.highest, 1 << 64)
            client.send(p4r.StreamMessageResponse(arbitration=update))


def _why_not(given: int | None, highest: int | None) -> str:
    """Explain why nobody who writes with an election id is the primary."""
    if given is None:
        return "this request has no election id"
    if highest is not None and given < highest:
        return f"this request has {given}, but the highest so far is {highest}: connect with that or a higher one"
    return f"no client with the election id of this request, {given}, is connected"


def _election_id(
    message: p4r.MasterArbitrationUpdate | p4r.WriteRequest | p4r.SetForwardingPipelineConfigRequest,
) -> int | None:
    if not message.HasField("election_id"):
        return None
    return message.election_id.high << 64 | message.election_id.low
