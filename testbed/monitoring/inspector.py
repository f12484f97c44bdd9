"""Reads the state of a network without involving its controller, in the network namespace of its switches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fanin.controller.errors import ControllerError
from fanin.controller.jobs.membership import JobService
from fanin.controller.telemetry import SwitchCounts, Telemetry
from fanin.p4switch.management.service import ManagementClient, ManagementError
from fanin.testbed.monitoring.snapshot import Cell, Cells, JobView, LinkView, Snapshot, SwitchView
from fanin.topologies.emulation import for_switch
from fanin.topologies.model import Link, Topology

_SECONDS = 5.0  # for a switch to send its registers
_COMMAND_SECONDS = 5.0  # for a command of iproute2

# The registers of a cell; p4src/aggregation.p4.
_REGISTERS = ("lease", "chunk", "seen", "done")


class Inspector:
    """Source of the snapshots and cells of `topology` that the job service answers with (docs/how-to/inside.md)."""

    def __init__(self, topology: Topology, telemetry: Telemetry, service: JobService) -> None:
        self._topology = topology
        self._telemetry = telemetry
        self._service = service

    def jobs(self) -> tuple[JobView, ...]:
        """Return the jobs whose workers have all joined."""
        return tuple(JobView.model_validate(job) for job in self._service.jobs.documents())

    async def look(self) -> Snapshot:
        """Return a snapshot of the network."""
        counted, interfaces, queues = await asyncio.gather(
            self._telemetry.counts(),
            _json_of("ip", "-json", "link", "show"),
            _json_of("tc", "-json", "-statistics", "qdisc", "show"),
        )
        ports = await self._emulated([name for name, found in counted.items() if not isinstance(found, str)])
        up = {each["ifname"]: {"UP", "LOWER_UP"} <= set(each["flags"]) for each in interfaces}
        shaped = {each["dev"]: each for each in queues if each.get("root")}
        jobs = self.jobs()
        return Snapshot.model_validate(
            {
                "at": time.time(),
                "jobs": jobs,
                "forming": self._service.forming(),
                "switches": {name: _switch_view(name, found, jobs) for name, found in counted.items()},
                "links": [
                    _link_view(link, sender, counted, up, shaped, ports)
                    for link in self._topology.links
                    for sender in (link.a.node, link.b.node)
                ],
            }
        )

    async def cells(self, name: str) -> Mapping[str, Cells]:
        """Return the contents of the slots of the job called `name`, by switch. BMv2 cannot read registers.

        Raises:
            ControllerError: There is no such job.
        """
        found = [job for job in self.jobs() if job.name == name]
        if not found:
            raise ControllerError(f"no job is called {name}")
        job = found[-1]
        read = await asyncio.gather(*(self._cells(part.switch, job) for part in job.tree))
        return {part.switch: cells for part, cells in zip(job.tree, read, strict=True)}

    async def _emulated(self, switches: Sequence[str]) -> dict[str, dict[int, dict[str, Any]]]:
        """Return the links that each of these switches emulates, by port."""
        ports = [self._topology.switch(name).grpc_port for name in switches]
        found = await asyncio.gather(*(asyncio.to_thread(_emulated_at, port) for port in ports))
        return dict(zip(switches, found, strict=True))

    async def _cells(self, switch: str, job: JobView) -> Cells:
        assert job.slots is not None
        try:
            async with asyncio.timeout(_SECONDS):
                columns = [
                    await self._telemetry.register(switch, f"ingress.aggregation.{name}")
                    for name in _REGISTERS
                ]
        except TimeoutError:
            return Cells(error=f"{switch} has not answered for {_SECONDS:g} s")
        except (ControllerError, ValueError) as error:  # ValueError: the program of another project
            return Cells(error=f"not known, as on BMv2 ({error})")
        mine = range(2 * job.slots[0], 2 * job.slots[1] + 2)
        rows = list(zip(*columns, strict=True))
        return Cells(cells={n: Cell(**dict(zip(_REGISTERS, rows[n], strict=True))) for n in mine})


def _switch_view(name: str, counted: SwitchCounts | str, jobs: tuple[JobView, ...]) -> SwitchView:
    slots = sum(job.window for job in jobs if any(part.switch == name for part in job.tree))
    if isinstance(counted, str):
        return SwitchView(slots=slots, error=counted)
    return SwitchView(
        slots=slots,
        received=sum(port.received.packets for port in counted.ports.values()),
        sent=sum(port.sent.packets for port in counted.ports.values()),
        drops={reason.name: count.packets for reason, count in counted.drops.items() if count.packets},
        events={event.name: count.packets for event, count in counted.events.items() if count.packets},
    )


def _link_view(
    link: Link,
    sender: str,
    counted: Mapping[str, SwitchCounts | str],
    up: Mapping[str, bool],
    shaped: Mapping[str, Mapping[str, Any]],
    emulated: Mapping[str, Mapping[int, Mapping[str, Any]]],
) -> LinkView:
    """Return one direction of a link. A switch counts what it sends, and what hosts send to it."""
    mine = sender in counted
    end = link.end(sender) if mine else link.far_end(sender)
    counts = counted[end.node]
    way = emulated.get(end.node, {}).get(end.port, {}).get("egress" if mine else "ingress")
    queue = shaped.get(end.interface) if mine else None
    packets = size = lost = waiting = None
    if isinstance(counts, SwitchCounts):
        port = counts.ports[end.port]
        passed, gone = (port.sent, port.lost_out) if mine else (port.received, port.lost_in)
        packets, size, lost = passed.packets, passed.bytes, gone.packets
    if queue is not None:
        waiting, lost = queue["backlog"], (lost or 0) + queue["drops"]
    if way is not None and "drops" in way:
        waiting, lost = way["queue_bytes"], (lost or 0) + sum(way["drops"].values())
    built = link.rate_bits_per_second
    # The kernel keeps the rate with which a link was built, unless the switch that sends emulates the link.
    limits = [built] if not mine or not for_switch(link.properties) or way is None else []
    limits.append(None if way is None else way["properties"].get("rate"))
    return LinkView(
        sender=sender,
        receiver=link.far_end(sender).node,
        rate=min((limit for limit in limits if limit is not None), default=None),
        built_rate=built,
        up=up.get(end.interface),
        packets=packets,
        bytes=size,
        lost=lost,
        queue_bytes=waiting,
    )


def _emulated_at(grpc_port: int) -> dict[int, dict[str, Any]]:
    """Return the links that the switch at this port emulates; none for BMv2 or a switch that is gone."""
    try:
        with ManagementClient(f"127.0.0.1:{grpc_port}") as client:
            return {port["port"]: port for port in client.call("Links", {})["ports"]}
    except ManagementError:
        return {}


async def _json_of(*command: str) -> list[dict[str, Any]]:
    """Return the JSON output of a command of iproute2; empty if it does not exist or does not end in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return []
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return []
    finally:
        if process.returncode is None:  # whoever waits is cancelled, too
            process.kill()
            await process.wait()
    found: list[dict[str, Any]] = json.loads(said or b"[]")
    return found
