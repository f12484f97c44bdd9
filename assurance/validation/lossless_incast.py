"""An incast under priority flow control, and its effect on a flow to its receiver's neighbour.

The scenario is one of htsim's: sim/EXAMPLES/collateral of github.com/nets-cs-pub-ro/NDP at 3d452ce. It is Figure 19 of
Handley et al., "Re-architecting datacenter networks and stacks for low latency and high performance", SIGCOMM 2017.
In a fat tree of 432 hosts at 10 Gb/s, 64 hosts send 50 packets of 9,000 bytes each to one host. Another host sends to
that host's neighbour below the same leaf. Thresholds and senders are those of htsim's program.

The figures for htsim here are from runs of that program, with its own seed of the paths (13) and others:

    htsim_dctcp_incast_collateral_lossless -nodes 432 -q 100 -conns 64 -flowsize 450000

and the same with -conns 16 -flowsize 1250000. The second case depends on rules in which the simulators differ. So it is
compared with a copy of htsim that has fanin's rules (docs/explanation/validation-htsim.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import HostModel
from fanin.simulator.fabric import Fabric
from fanin.simulator.flows import Flows, FlowSpec
from fanin.topologies.link import Pause
from fanin.topologies.shapes import fat_tree
from fanin.workers.host_based.transport import PAYLOAD
from fanin.workers.recovery import Recovery

PACKET_BYTES = 1112  # a full packet on a link, including all headers and the gap between frames
HTSIM_PACKET_BYTES = 9000
RATE = 10 * 10**9  # bits/s
# One of our packets takes as long on such links as one of htsim's on its links, so that numbers of packets agree.
SCALED_RATE = RATE * PACKET_BYTES // HTSIM_PACKET_BYTES

# htsim's thresholds, in its packets: pauses of the switch's input, and the queue above which packets are marked.
XOFF, XON, MARKED = 15, 12, 16
SENDERS, PACKETS, WINDOW = 64, 50, 10

FULL = 0.95  # a link with a lower utilization is under-used

_BEGIN = 2  # milliseconds: the other flow fills its link by then
_SAMPLE = 1e-3
_LIMIT = 60  # samples
_UNLIMITED = 10_000  # packets, more than any flow has
TOLERANCE = 0.1
_RECOVERY = Recovery(
    initial_rto=1.0, min_rto=1.0, granularity=1e-6
)  # nothing is lost under priority flow control
_HOST = HostModel(coalescing=2e-6)

# Time for which the second host's link carries less than half of its capacity, and less than FULL.
Milliseconds = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Incast:
    """`senders` hosts each send `size` bytes at once to the first host, and another host fills the link of the second.

    Attributes:
        name: Name of the case.
        senders: Number of senders.
        size: Bytes that each sends.
        rate: Rate of the links in bits/s.
        packet_bytes: Bytes of a packet, the unit of the thresholds.
        window: Window of the senders.
        congestion: Congestion control of the senders.
        other: Congestion control of the other flow.
        other_window: Window of the other flow.
        pauses: Whether there is priority flow control.
        seeds: Seeds of the paths, which are drawn again for each.
        htsim: htsim's result, by the number of flows that share the other flow's path into the leaf. Ours must be close
            to it. None: it has not been run there.
        k: Ports of each switch of the fat tree.
    """

    name: str
    senders: int = SENDERS
    size: int
    rate: int
    packet_bytes: int
    window: int
    congestion: Congestion
    other: Congestion
    other_window: int
    pauses: bool = True
    seeds: tuple[int, ...] = (0,)
    htsim: Mapping[int, Milliseconds] | None = None
    k: int = 12


# Means of all its runs with as many flows on the other flow's path.
_HTSIM_INCAST: Mapping[int, Milliseconds] = {
    5: (11.0, 11.0),
    6: (13.0, 14.0),
    7: (15.2, 16.0),
    8: (17.5, 17.5),
    9: (18.9, 19.6),
    10: (20.8, 21.2),
    11: (21.8, 22.5),
    12: (22.7, 23.0),
    13: (22.7, 23.7),
    14: (23.0, 24.0),
    15: (23.5, 23.5),
    16: (23.5, 24.8),
}
# With fanin's rules for senders, marks and pauses.
_HTSIM_BURST: Mapping[int, Milliseconds] = {
    0: (0.0, 0.0),
    1: (0.0, 9.0),
    2: (8.9, 12.1),
    3: (12.7, 14.8),
    4: (15.1, 16.9),
    5: (15.9, 17.1),
    6: (16.0, 17.0),
}

AS_HTSIM = Incast(
    name="64 hosts, 50 packets each",
    size=PACKETS * PAYLOAD,
    rate=SCALED_RATE,
    packet_bytes=PACKET_BYTES,
    window=_UNLIMITED,
    congestion=Congestion(
        control="dctcp",
        initial_alpha=0,
        min_window=1,
        initial_window=WINDOW,
        ssthresh=WINDOW,
        increase="always",
    ),
    # In htsim it has grown for 80 ms by slow start, unmarked: its window is longer than the incast.
    other=Congestion(control="none"),
    other_window=_UNLIMITED,
    seeds=(0, 1, 2, 3, 4),
    htsim=_HTSIM_INCAST,
)
# Each sends for a millisecond, which is 139 packets in htsim.
BURST = replace(
    AS_HTSIM,
    name="16 hosts, 1 ms each",
    senders=16,
    size=139 * PAYLOAD,
    seeds=tuple(range(30)),
    htsim=_HTSIM_BURST,
)
_DCQCN_CONTROL = Congestion(control="dcqcn-paper", min_rate=10_000_000)  # less than a 64th of the link
_DCQCN_WINDOW = WINDOW * HTSIM_PACKET_BYTES // PAYLOAD
_DCQCN = replace(
    AS_HTSIM,
    name="DCQCN, 64 hosts, 450 kB each",
    size=PACKETS * HTSIM_PACKET_BYTES,
    rate=RATE,
    packet_bytes=HTSIM_PACKET_BYTES,
    window=_DCQCN_WINDOW,
    congestion=_DCQCN_CONTROL,
    other=_DCQCN_CONTROL,
    other_window=_DCQCN_WINDOW,
    seeds=(1,),
    htsim=None,
)

INCASTS = (
    AS_HTSIM,
    BURST,
    replace(AS_HTSIM, name="64 hosts, without pauses", pauses=False, seeds=(0,), htsim=None),
    _DCQCN,
    replace(_DCQCN, name="DCQCN, 16 hosts, 1 ms each", senders=16, size=RATE // 8 // 1000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The utilization of the second host's link. Times are in milliseconds.

    Attributes:
        sharing: Number of flows of the incast that enter the leaf on the other flow's path.
        below_half: How long it carried less than half of its capacity.
        under_used: How long it carried less than FULL.
        shares: Utilization in each millisecond of below_half.
        lasted: Duration of the incast.
    """

    sharing: int
    below_half: int
    under_used: int
    shares: tuple[float, ...]
    lasted: int


@dataclass(frozen=True, slots=True)
class Victim:
    """An incast with each of its seeds."""

    incast: Incast
    seen: tuple[Seen, ...]

    @property
    def ours(self) -> Milliseconds:
        """Return the means over the seeds."""
        return fmean(one.below_half for one in self.seen), fmean(one.under_used for one in self.seen)

    @property
    def htsim(self) -> Milliseconds | None:
        """Return htsim's means, for as many flows on the shared path as here."""
        recorded = self.incast.htsim
        if recorded is None:
            return None
        below_half, under_used = zip(*(recorded[one.sharing] for one in self.seen), strict=True)
        return fmean(below_half), fmean(under_used)

    @property
    def agrees(self) -> bool:
        """Return whether ours agree with htsim's within the tolerance, if it was run there."""
        return all(abs(apart) <= TOLERANCE for apart in self.apart)

    @property
    def apart(self) -> tuple[float, ...]:
        """Return the differences, as shares of htsim's."""
        return tuple(ours / htsim - 1 for ours, htsim in zip(self.ours, self.htsim or (), strict=False))

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of simulators.json."""
        names = ("below_half", "under_used")
        return {
            "incast": self.incast.name,
            "milliseconds": dict(zip(names, self.ours, strict=True)),
            "htsim": self.htsim and dict(zip(names, self.htsim, strict=True)),
            "seeds": [asdict(seen) for seen in self.seen],
        }

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row, with times in milliseconds."""
        htsim = [f"{theirs:.1f}" for theirs in self.htsim or ()] or ["", ""]
        apart = [f"{one:+.0%}" for one in self.apart] or ["", ""]
        compared = zip(htsim, (f"{ours:.1f}" for ours in self.ours), apart, strict=True)
        sharing, lasted = fmean(one.sharing for one in self.seen), fmean(one.lasted for one in self.seen)
        return (self.incast.name, f"{lasted:.1f}", f"{sharing:.1f}", *chain.from_iterable(compared))


def run(incast: Incast, switch: Engine) -> Victim:
    """Run all its seeds in virtual time, on switches with the program of `switch`."""
    return Victim(incast, tuple(_seen(incast, switch, seed) for seed in incast.seeds))


def _seen(incast: Incast, switch: Engine, seed: int) -> Seen:
    packet = incast.packet_bytes
    # In htsim a link is released below XON; here when no more than xon_bytes wait.
    pause = Pause(xoff_bytes=XOFF * packet, xon_bytes=XON * packet - 1) if incast.pauses else None
    properties = {"delay": 1e-6, "ecn_bytes": MARKED * packet, "pause": pause}
    topology = fat_tree(incast.k, rate=incast.rate, properties=properties)
    hosts = [host.name for host in topology.ranked_hosts]
    # As in htsim: the last hosts but one send to the first, and one below the next leaf to the second.
    senders = hosts[-1 - incast.senders : -1]
    full = (
        incast.rate / 8 * _SAMPLE * PAYLOAD / PACKET_BYTES
    )  # bytes of payload that a link carries in a sample
    begin = _BEGIN * _SAMPLE
    fabric = Fabric(topology, switch, host=_HOST, seed=seed)
    other = Flows(
        fabric,
        [
            FlowSpec(
                source=hosts[incast.k // 2 + 1], destination=hosts[1], size=round(full * (_LIMIT + _BEGIN))
            )
        ],
        window=incast.other_window,
        recovery=_RECOVERY,
        congestion_control=incast.other.control_of,
        seed=seed,
    )
    flows = Flows(
        fabric,
        [FlowSpec(source=host, destination=hosts[0], size=incast.size, start=begin) for host in senders],
        window=incast.window,
        recovery=_RECOVERY,
        congestion_control=incast.congestion.control_of,
        seed=seed,
    )
    flows.run(begin)
    way = int(np.argmax(_into_leaf(fabric)))  # so far only the other flow has sent
    victim: list[float] = []
    receiver: list[float] = []
    while len(victim) < _LIMIT and (not flows.finished or victim[-1] < FULL):
        before = sum(other.missing), sum(flows.missing)
        other.run((_BEGIN + len(victim) + 1) * _SAMPLE)
        victim.append((before[0] - sum(other.missing)) / full)
        receiver.append((before[1] - sum(flows.missing)) / full)
    elsewhere = np.delete(_into_leaf(fabric), way).sum() // -(-incast.size // PAYLOAD)
    shares = tuple(share for share in victim if share < 1 / 2)
    return Seen(
        sharing=incast.senders - int(elsewhere),
        below_half=len(shares),
        under_used=sum(share < FULL for share in victim),
        shares=shares,
        lasted=sum(share > 0 for share in receiver),
    )


def _into_leaf(fabric: Fabric) -> NDArray[np.int64]:
    """Return the packets on each link that leads to the first host's leaf from another switch."""
    hosts = fabric.topology.ranked_hosts
    names, leaf = {host.name for host in hosts}, hosts[0].leaf
    into = [near not in names and far == leaf for near, far in fabric.network.link_ends]
    return np.asarray(fabric.network.links.counts.packets)[into]
