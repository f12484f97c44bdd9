"""An incast under priority flow control, and what becomes of a flow to its receiver's neighbour.

The scenario is one of htsim's, sim/EXAMPLES/collateral of github.com/nets-cs-pub-ro/NDP at 3d452ce, Figure 19 of
"Re-architecting datacenter networks and stacks for low latency and high performance" (Handley et al., SIGCOMM 2017): a
fat tree of 432 hosts at 10 Gb/s, 64 of which send 50 packets of 9,000 bytes each to one host, while another host sends
to that one's neighbour below the same leaf. Its figures here are medians of ten runs of that, built and run on
2026-11-24 (htsim_dctcp_incast_collateral_lossless -nodes 432 -q 100 -conns 64 -flowsize 450000, or 16 and 1250000),
with its own seed of the paths and nine more; thresholds and windows are those of its program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean, median

from experiments.scenario.tables.congestion import Congestion
from experiments.virtual.fabric import Fabric
from experiments.virtual.flows import Flows, FlowSpec
from p4switch.engine.engine import Engine
from topologies.link import Pause
from topologies.shapes import fat_tree
from topologies.virtual import HostModel
from workers.host_based.transport import PAYLOAD
from workers.recovery import Recovery

PACKET_BYTES = 1112  # of a full packet on a link, all headers and the gap between frames included
HTSIM_PACKET_BYTES = 9000
RATE = 10 * 10**9  # bits/s
# A packet of ours takes as long on such links as one of htsim's on its own, so that all that is said in packets agrees.
SCALED_RATE = RATE * PACKET_BYTES // HTSIM_PACKET_BYTES

# htsim's, in its packets: pauses of the switch's input, and the queue above which packets are marked.
XOFF, XON, MARKED = 15, 12, 16
SENDERS, PACKETS, WINDOW = 64, 50, 10

FULL = 0.95  # a link that carries less of what it can is under-used
TOLERANCE = 0.25

_BEGIN = 2  # milliseconds: the other flow fills its link by then
_SAMPLE = 1e-3
_LIMIT = 60  # samples
_RECOVERY = Recovery(
    initial_rto=1.0, min_rto=1.0, granularity=1e-6
)  # nothing is lost under priority flow control
_HOST = HostModel(coalescing=2e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Of htsim: milliseconds in which the second host's link carries less than half of its rate, and less than FULL."""

    below_half: float
    under_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Incast:
    """`senders` send `size` bytes each at once to the first host, and another one fills the link of the second.

    packet_bytes: those in which thresholds are counted. seeds: of the paths, drawn anew for each. htsim: what it says
    (None: it has not been run there). judged: ours must be near that.
    """

    name: str
    senders: int = SENDERS
    size: int
    rate: int
    packet_bytes: int
    window: int
    congestion: Congestion
    pauses: bool = True
    seeds: tuple[int, ...] = (0,)
    htsim: Recorded | None = None
    judged: bool = True
    k: int = 12


AS_HTSIM = Incast(
    name="64 hosts, 50 packets each",
    size=PACKETS * PAYLOAD,
    rate=SCALED_RATE,
    packet_bytes=PACKET_BYTES,
    window=WINDOW,
    congestion=Congestion(control="dctcp"),
    seeds=(0, 1, 2, 3, 4),
    htsim=Recorded(below_half=21, under_used=21.5),
)
# Each sends for a millisecond, which htsim makes 139 packets.
BURST = replace(
    AS_HTSIM,
    name="16 hosts, 1 ms each",
    senders=16,
    size=139 * PAYLOAD,
    htsim=Recorded(below_half=8.5, under_used=15.5),
    judged=False,  # pauses end sooner here, since DCTCP begins in another way: docs/validation.md
)
_DCQCN = replace(
    AS_HTSIM,
    name="DCQCN, 64 hosts, 450 kB each",
    size=PACKETS * HTSIM_PACKET_BYTES,
    rate=RATE,
    packet_bytes=HTSIM_PACKET_BYTES,
    window=WINDOW * HTSIM_PACKET_BYTES // PAYLOAD,
    congestion=Congestion(control="dcqcn-paper", min_rate=10_000_000),  # less than a 64th of the link
    seeds=(0,),
    htsim=None,
)

INCASTS = (
    AS_HTSIM,
    BURST,
    replace(AS_HTSIM, name="64 hosts, without pauses", pauses=False, seeds=(0,), htsim=None),
    _DCQCN,
    replace(_DCQCN, name="DCQCN, 16 hosts, 1 ms each", senders=16, size=RATE // 8 // 1000),
)


@dataclass(frozen=True, slots=True)
class Victim:
    """What became of the second host's link, the median of all seeds, in milliseconds.

    below_half: in how many it carried less than half of what it can; each: with each seed. share: of what it can, the
    mean of these. under_used: in how many it carried less than FULL of it. lasted: the incast.
    """

    incast: Incast
    below_half: float
    each: tuple[int, ...]
    under_used: float
    share: float | None
    lasted: float

    @property
    def difference(self) -> float | None:
        """Of below_half, as a share of htsim's."""
        htsim = self.incast.htsim
        return None if htsim is None else self.below_half / htsim.below_half - 1

    @property
    def agrees(self) -> bool:
        """Within the tolerance, if it is judged."""
        htsim = self.incast.htsim
        if htsim is None or not self.incast.judged:
            return True
        pairs = ((self.below_half, htsim.below_half), (self.under_used, htsim.under_used))
        return all(abs(ours / theirs - 1) <= TOLERANCE for ours, theirs in pairs)

    @property
    def cells(self) -> tuple[str, ...]:
        """For people, times in milliseconds."""
        htsim = self.incast.htsim
        return (
            self.incast.name,
            f"{self.lasted:g}",
            "" if htsim is None else f"{htsim.below_half:g}",
            f"{self.below_half:g}",
            "" if self.difference is None else f"{self.difference:+.0%}",
            "" if htsim is None else f"{htsim.under_used:g}",
            f"{self.under_used:g}",
        )


def run(incast: Incast, switch: Engine) -> Victim:
    """All its seeds in virtual time, switches with the program of `switch`."""
    found = [_samples(incast, switch, seed) for seed in incast.seeds]
    each = tuple(len([share for share in victim if share < 1 / 2]) for victim, _ in found)
    low = [share for victim, _ in found for share in victim if share < 1 / 2]
    return Victim(
        incast,
        below_half=median(each),
        each=each,
        under_used=median(len([share for share in victim if share < FULL]) for victim, _ in found),
        share=fmean(low) if low else None,
        lasted=median(len([share for share in receiver if share]) for _, receiver in found),
    )


def _samples(incast: Incast, switch: Engine, seed: int) -> tuple[list[float], list[float]]:
    """Of the links of the second host and of the first, what is used of them in each millisecond of the incast."""
    packet = incast.packet_bytes
    pause = Pause(xoff_bytes=XOFF * packet, xon_bytes=XON * packet) if incast.pauses else None
    properties = {"delay": 1e-6, "ecn_bytes": MARKED * packet, "pause": pause}
    topology = fat_tree(incast.k, rate=incast.rate, properties=properties)
    hosts = [host.name for host in topology.ranked_hosts]
    # As in htsim: the last hosts but one send to the first, and one below the next leaf to the second.
    senders = hosts[-1 - incast.senders : -1]
    full = (
        incast.rate / 8 * _SAMPLE * PAYLOAD / PACKET_BYTES
    )  # bytes of payload that a link carries in a sample
    begin = _BEGIN * _SAMPLE
    flows = Flows(
        Fabric(topology, switch, host=_HOST, seed=seed),
        [
            FlowSpec(
                source=hosts[incast.k // 2 + 1], destination=hosts[1], size=round(full * (_LIMIT + _BEGIN))
            ),
            *(FlowSpec(source=host, destination=hosts[0], size=incast.size, start=begin) for host in senders),
        ],
        window=incast.window,
        recovery=_RECOVERY,
        congestion=incast.congestion,
        seed=seed,
    )
    flows.run(begin)
    victim: list[float] = []
    receiver: list[float] = []
    before = flows.missing
    while len(victim) < _LIMIT and (any(before[1:]) or victim[-1] < FULL):
        flows.run((_BEGIN + len(victim) + 1) * _SAMPLE)
        now = flows.missing
        victim.append((before[0] - now[0]) / full)
        receiver.append((sum(before[1:]) - sum(now[1:])) / full)
        before = now
    return victim, receiver
