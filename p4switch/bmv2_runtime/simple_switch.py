"""BMv2's service SimpleSwitch: mirroring sessions, queues and clocks."""

from __future__ import annotations

import time
from typing import Any

from fanin.p4switch.bmv2_runtime.replication import Replication
from fanin.p4switch.engine.links import Direction, LinkError
from fanin.p4switch.p4runtime.device import Device

PRIORITIES = 8  # v1model's priority is bit<3>


class SimpleSwitch:
    """Methods of the service. Callers hold the device's lock.

    The queues of a port are those of its emulated link: a rate in packets per second makes one. All priorities of a
    port share its rate, and each has the depth.
    """

    def __init__(self, device: Device, replication: Replication) -> None:
        self._device = device
        self.mirroring_session_add = replication.mirroring_session_add
        self.mirroring_session_delete = replication.mirroring_session_delete
        self.mirroring_session_get = replication.mirroring_session_get
        self.mirroring_mapping_add = replication.mirroring_mapping_add
        self.mirroring_mapping_delete = replication.mirroring_mapping_delete
        self.mirroring_mapping_get_egress_port = replication.mirroring_mapping_get_egress_port

    def set_egress_queue_rate(self, port_num: int, rate_pps: int) -> int:
        """Set how many packets per second leave a port. Return 0, or 1 if there is no such port."""
        return self._set(port_num, packet_rate=rate_pps or None)

    def set_all_egress_queue_rates(self, rate_pps: int) -> int:
        """Set how many packets per second leave each port."""
        return max(
            (self._set(port, packet_rate=rate_pps or None) for port in self._device.interfaces), default=0
        )

    def set_egress_priority_queue_rate(self, port_num: int, priority: int, rate_pps: int) -> int:
        """Set how many packets per second leave a port; all of its priorities share the rate."""
        return self.set_egress_queue_rate(port_num, rate_pps) if 0 <= priority < PRIORITIES else 1

    def set_egress_queue_depth(self, port_num: int, depth_pkts: int) -> int:
        """Set how many packets wait for a port at most, of each priority."""
        return self._set(port_num, queue_packets=depth_pkts)

    def set_all_egress_queue_depths(self, depth_pkts: int) -> int:
        """Set how many packets wait for each port at most."""
        return max((self._set(port, queue_packets=depth_pkts) for port in self._device.interfaces), default=0)

    def set_egress_priority_queue_depth(self, port_num: int, priority: int, depth_pkts: int) -> int:
        """Set how many packets of each priority wait for a port at most."""
        return self.set_egress_queue_depth(port_num, depth_pkts) if 0 <= priority < PRIORITIES else 1

    def get_time_elapsed_us(self) -> int:
        """Return the microseconds since the ports were opened, as in the timestamps of packets."""
        return self._device.engine.now() if self._device.engine is not None else 0

    def get_time_since_epoch_us(self) -> int:
        """Return the microseconds since 1970."""
        return time.time_ns() // 1000

    def _set(self, port: int, **properties: Any) -> int:
        try:
            self._device.set_link(port, Direction.EGRESS, properties)
        except LinkError:
            return 1
        return 0
