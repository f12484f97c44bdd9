"""Multicast groups (P4Runtime specification, "MulticastGroupEntry")."""

from __future__ import annotations

import grpc

from fanin.p4switch.engine.replicas import ReplicaGroups
from fanin.p4switch.p4runtime.entities.replication import ReplicationKind
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid
from fanin.p4switch.p4runtime.proto import p4r

_MAX_GROUP = 0xFFFF  # v1model: standard_metadata.mcast_grp is bit<16>


class MulticastGroups(ReplicationKind[p4r.MulticastGroupEntry]):
    """Multicast groups: the replicas of a packet."""

    field = "multicast_group_entry"
    what = "multicast group"
    number_field = "multicast_group_id"

    @property
    def _groups(self) -> ReplicaGroups:
        return self._engine.multicast

    def _checked_number(self, message: p4r.MulticastGroupEntry) -> int:
        group = message.multicast_group_id
        if group == 0:
            raise invalid("0 is not a multicast group: it means no multicast to the data plane")
        if group > _MAX_GROUP:
            raise P4RuntimeError(
                grpc.StatusCode.OUT_OF_RANGE,
                f"multicast group {group} is above {_MAX_GROUP}, mcast_grp's largest value",
            )
        return group
