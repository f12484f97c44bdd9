"""BMv2's packet replication engine: multicast groups made of nodes, and mirroring sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from thrift.Thrift import TApplicationException

from fanin.p4switch.bmv2_runtime.interface import (
    InvalidMcOperation,
    InvalidMirroringOperation,
    McOperationErrorCode,
    MirroringOperationErrorCode,
    MirroringSessionConfig,
)
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.replicas import ReplicaGroups
from fanin.p4switch.entries import Replica, TableError
from fanin.p4switch.p4runtime.device import Device

_LAG_HASH = 0xFF  # BMv2 takes this in place of a hash of the packet


@dataclass(slots=True)
class _Node:
    """Node: copies with the instance `rid` to ports, and to one port of each of its groups of links."""

    rid: int
    ports: tuple[int, ...]
    lags: tuple[int, ...] = ()
    group: int | None = None


@dataclass(slots=True)
class Replication:
    """Multicast groups and mirroring sessions, for both of BMv2's services. Callers hold the device's lock."""

    device: Device
    groups: dict[int, list[int]] = field(default_factory=dict)
    nodes: dict[int, _Node] = field(default_factory=dict)
    lags: dict[int, tuple[int, ...]] = field(default_factory=dict)
    sessions: dict[int, MirroringSessionConfig] = field(default_factory=dict)

    # Groups of nodes

    def bm_mc_mgrp_create(self, mgrp: int) -> int:
        """Create a multicast group without nodes. Return its handle."""
        if mgrp in self.groups or mgrp in self._engine.multicast.all():
            raise InvalidMcOperation(McOperationErrorCode.INVALID_MGID)
        try:
            self._engine.multicast.insert(mgrp, ())
        except TableError:
            raise InvalidMcOperation(McOperationErrorCode.INVALID_MGID) from None
        self.groups[mgrp] = []
        return mgrp

    def bm_mc_mgrp_destroy(self, mgrp_handle: int) -> None:
        """Remove a multicast group. Its nodes remain."""
        for handle in self._group(mgrp_handle):
            self.nodes[handle].group = None
        del self.groups[mgrp_handle]
        self._engine.multicast.delete(mgrp_handle)
        self._update_sessions()

    def bm_mc_node_create(self, rid: int, port_map: str, lag_map: str = "") -> int:
        """Create a node. Return its handle."""
        handle = next(n for n in range(len(self.nodes) + 1) if n not in self.nodes)
        self.nodes[handle] = _Node(rid, _numbers(port_map), _numbers(lag_map or ""))
        return handle

    def bm_mc_node_associate(self, mgrp_handle: int, l1_handle: int) -> None:
        """Add a node to a group."""
        group, node = self._group(mgrp_handle), self._node(l1_handle)
        if node.group is not None:
            raise InvalidMcOperation(McOperationErrorCode.ERROR)
        group.append(l1_handle)
        node.group = mgrp_handle
        self._update(mgrp_handle)

    def bm_mc_node_dissociate(self, mgrp_handle: int, l1_handle: int) -> None:
        """Remove a node from a group."""
        group, node = self._group(mgrp_handle), self._node(l1_handle)
        if node.group != mgrp_handle:
            raise InvalidMcOperation(McOperationErrorCode.ERROR)
        group.remove(l1_handle)
        node.group = None
        self._update(mgrp_handle)

    def bm_mc_node_destroy(self, l1_handle: int) -> None:
        """Remove a node, also from its group."""
        node = self._node(l1_handle)
        if node.group is not None:
            self.bm_mc_node_dissociate(node.group, l1_handle)
        del self.nodes[l1_handle]

    def bm_mc_node_update(self, l1_handle: int, port_map: str, lag_map: str = "") -> None:
        """Replace the ports of a node."""
        node = self._node(l1_handle)
        node.ports, node.lags = _numbers(port_map), _numbers(lag_map or "")
        if node.group is not None:
            self._update(node.group)

    def bm_mc_set_lag_membership(self, lag_index: int, port_map: str) -> None:
        """Set the ports of a group of links."""
        self.lags[lag_index] = _numbers(port_map)
        for group in self.groups:
            self._update(group)

    def bm_mc_get_entries(self) -> str:
        """Return groups and nodes as JSON."""
        handles = sorted(self.nodes)
        return json.dumps(
            {
                "mgrps": [{"id": g, "l1_handles": nodes} for g, nodes in sorted(self.groups.items())],
                "l1_handles": [{"handle": h, "rid": self.nodes[h].rid, "l2_handle": h} for h in handles],
                "l2_handles": [
                    {"handle": h, "ports": list(self.nodes[h].ports), "lags": list(self.nodes[h].lags)}
                    for h in handles
                ],
                "lags": [{"id": i, "ports": list(ports)} for i, ports in sorted(self.lags.items())],
            }
        )

    # Mirroring sessions

    def mirroring_session_add(self, mirror_id: int, config: MirroringSessionConfig) -> None:
        """Set where the packets of a session go."""
        self._set_session(mirror_id, config)

    def mirroring_session_delete(self, mirror_id: int) -> None:
        """Remove a session."""
        if self.sessions.pop(mirror_id, None) is None:
            raise InvalidMirroringOperation(MirroringOperationErrorCode.SESSION_NOT_FOUND)
        self._engine.sessions.delete(mirror_id)

    def mirroring_session_get(self, mirror_id: int) -> MirroringSessionConfig:
        """Return where the packets of a session go."""
        if mirror_id not in self.sessions:
            raise InvalidMirroringOperation(MirroringOperationErrorCode.SESSION_NOT_FOUND)
        return self.sessions[mirror_id]

    def mirroring_mapping_add(self, mirror_id: int, egress_port: int) -> int:
        """Let a session send to a port."""
        self._set_session(mirror_id, MirroringSessionConfig(port=egress_port))
        return 0

    def mirroring_mapping_delete(self, mirror_id: int) -> int:
        """Remove a session. Return 0, or 1 if there is none."""
        if mirror_id not in self.sessions:
            return 1
        self.mirroring_session_delete(mirror_id)
        return 0

    def mirroring_mapping_get_egress_port(self, mirror_id: int) -> int:
        """Return the port of a session; -1 if it has none."""
        session = self.sessions.get(mirror_id)
        return -1 if session is None or session.port is None else int(session.port)

    # All of it

    def reset(self) -> None:
        """Remove all groups, nodes and sessions, also those that were written over P4Runtime."""
        for kind in (self._engine.multicast, self._engine.sessions):
            for number in kind.all():
                kind.delete(number)
        self.forget()

    def forget(self) -> None:
        """Forget all groups, nodes and sessions, because another program has none."""
        for kept in (self.groups, self.nodes, self.lags, self.sessions):
            kept.clear()

    @property
    def _engine(self) -> Engine:
        if self.device.engine is None:
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, "the switch has no program yet")
        return self.device.engine

    def _group(self, handle: int) -> list[int]:
        if handle not in self.groups:
            raise InvalidMcOperation(McOperationErrorCode.INVALID_MGRP_HANDLE)
        return self.groups[handle]

    def _node(self, handle: int) -> _Node:
        if handle not in self.nodes:
            raise InvalidMcOperation(McOperationErrorCode.INVALID_L1_HANDLE)
        return self.nodes[handle]

    def _replicas(self, group: int) -> Iterator[Replica]:
        for handle in self.groups.get(group, ()):
            node = self.nodes[handle]
            yield from (Replica(port, node.rid) for port in node.ports)
            for lag in node.lags:
                if ports := self.lags.get(lag):
                    yield Replica(ports[_LAG_HASH % len(ports)], node.rid)

    def _update(self, group: int) -> None:
        """Write the replicas of a group, and those of the sessions that send to it."""
        try:
            self._engine.multicast.modify(group, tuple(self._replicas(group)))
        except TableError:
            raise InvalidMcOperation(McOperationErrorCode.ERROR) from None
        self._update_sessions()

    def _update_sessions(self) -> None:
        for number, config in self.sessions.items():
            if config.mgid is not None:
                _write(self._engine.sessions, number, self._copies(config))

    def _set_session(self, number: int, config: MirroringSessionConfig) -> None:
        try:
            _write(self._engine.sessions, number, self._copies(config))
        except TableError as error:
            raise TApplicationException(TApplicationException.INTERNAL_ERROR, str(error)) from None
        self.sessions[number] = config

    def _copies(self, config: MirroringSessionConfig) -> tuple[Replica, ...]:
        direct = () if config.port is None else (Replica(config.port, 0),)
        return (*direct, *(self._replicas(config.mgid) if config.mgid is not None else ()))


def _write(kind: ReplicaGroups, number: int, replicas: tuple[Replica, ...]) -> None:
    (kind.modify if number in kind.all() else kind.insert)(number, replicas)


def _numbers(bits: str) -> tuple[int, ...]:
    """Return the numbers of a map of ports: a text of 0 and 1, of which the last one is for number 0."""
    if set(bits) - {"0", "1"}:
        raise InvalidMcOperation(McOperationErrorCode.ERROR)
    return tuple(place for place, bit in enumerate(reversed(bits)) if bit == "1")
