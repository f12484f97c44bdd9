"""An incast under priority flow control, and what becomes of a flow to its receiver's neighbour.

The scenario is one of htsim's, sim/EXAMPLES/collateral of github.com/nets-cs-pub-ro/NDP at 3d452ce, Figure 19 of
"Re-architecting datacenter networks and stacks for low latency and high performance" (Handley et al., SIGCOMM 2017): a
fat tree of 432 hosts at 10 Gb/s, 64 of which send 50 packets of 9,000 bytes each to one host, while another host sends
to that one's neighbour below the same leaf. Its figures here are of ten runs of that, built and run on 2026-11-25
(htsim_dctcp_incast_collateral_lossless -nodes 432 -q 100 -conns 64 -flowsize 450000, or 16 and 1250000), with its own
seed of the paths (13) and 1 to 9; thresholds and senders are those of its program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev

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

_BEGIN = 2  # milliseconds: the other flow fills its link by then
_SAMPLE = 1e-3
_LIMIT = 60  # samples
_UNLIMITED = 10_000  # packets, more than any flow has
_RECOVERY = Recovery(
    initial_rto=1.0, min_rto=1.0, granularity=1e-6
)  # nothing is lost under priority flow control
_HOST = HostModel(coalescing=2e-6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Of htsim: milliseconds in which the second host's link carries less than half of its rate, and less than FULL.

    Of each run, whose paths are drawn.
    """

    below_half: tuple[int, ...]
    under_used: tuple[int, ...]


def bounds(runs: tuple[int, ...], count: int) -> tuple[float, float]:
    """Within which the mean of `count` more of the same kind lies in 19 of 20 cases: two standard errors."""
    mean, error = fmean(runs), stdev(runs) / sqrt(count)
    return mean - 2 * error, mean + 2 * error


@dataclass(frozen=True, slots=True, kw_only=True)
class Incast:
    """`senders` send `size` bytes each at once to the first host, and another one fills the link of the second.

    packet_bytes: those in which thresholds are counted. beside: congestion control of the other flow, which has a
    window of `beside_window`. seeds: of the paths, drawn anew for each. htsim: what it says (None: it has not been run
    there), and ours must be near that.
    """

    name: str
    senders: int = SENDERS
    size: int
    rate: int
    packet_bytes: int
    window: int
    congestion: Congestion
    beside: Congestion
    beside_window: int
    pauses: bool = True
    seeds: tuple[int, ...] = (0,)
    htsim: Recorded | None = None
    k: int = 12


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
    # There it has grown for 80 ms by slow start, unmarked: its window is longer than the incast.
    beside=Congestion(control="none"),
    beside_window=_UNLIMITED,
    seeds=(0, 1, 2, 3, 4),
    htsim=Recorded(
        below_half=(19, 15, 23, 21, 13, 23, 16, 24, 22, 21),
        under_used=(19, 16, 25, 22, 14, 24, 16, 24, 23, 21),
    ),
)
# Each sends for a millisecond, which htsim makes 139 packets.
BURST = replace(
    AS_HTSIM,
    name="16 hosts, 1 ms each",
    senders=16,
    size=139 * PAYLOAD,
    seeds=tuple(range(10)),
    htsim=Recorded(
        below_half=(0, 6, 6, 16, 0, 11, 7, 11, 13, 10), under_used=(0, 15, 14, 18, 0, 17, 15, 17, 17, 16)
    ),
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
    beside=_DCQCN_CONTROL,
    beside_window=_DCQCN_WINDOW,
    seeds=(0,),
    htsim=None,
)

INCASTS = (
    AS_HTSIM,
    BURST,
    replace(AS_HTSIM, name="64 hosts, without pauses", pauses=False, seeds=(0,), htsim=None),
    replace(
        BURST, name="16 hosts, 1 ms each, as RFC 8257", congestion=Congestion(), window=WINDOW, htsim=None
    ),
    _DCQCN,
    replace(_DCQCN, name="DCQCN, 16 hosts, 1 ms each", senders=16, size=RATE // 8 // 1000),
)


@dataclass(frozen=True, slots=True)
class Victim:
    """What became of the second host's link, by seed, in milliseconds.

    below_half: in how many it carried less than half of what it can; share: of what it can, the mean of these.
    under_used: in how many it carried less than FULL of it. lasted: the incast.
    """

    incast: Incast
    below_half: tuple[int, ...]
    under_used: tuple[int, ...]
    share: float | None
    lasted: tuple[int, ...]

    @property
    def agrees(self) -> bool:
        """Both means are within the bounds of htsim's runs, if there are any."""
        htsim = self.incast.htsim
        if htsim is None:
            return True
        pairs = ((self.below_half, htsim.below_half), (self.under_used, htsim.under_used))
        return all(
            low <= fmean(ours) <= high for ours, runs in pairs for low, high in [bounds(runs, len(ours))]
        )

    @property
    def cells(self) -> tuple[str, ...]:
        """For people, means in milliseconds."""
        htsim = self.incast.htsim
        return (
            self.incast.name,
            f"{fmean(self.lasted):.1f}",
            *_beside(self.below_half, htsim and htsim.below_half),
            *_beside(self.under_used, htsim and htsim.under_used),
        )


def _beside(ours: tuple[int, ...], htsim: tuple[int, ...] | None) -> tuple[str, ...]:
    """htsim's mean, ours, and what ours must be."""
    if htsim is None:
        return "", f"{fmean(ours):.1f}", ""
    low, high = bounds(htsim, len(ours))
    return f"{fmean(htsim):.1f}", f"{fmean(ours):.1f}", f"{low:.1f} to {high:.1f}"


def run(incast: Incast, switch: Engine) -> Victim:
    """All its seeds in virtual time, switches with the program of `switch`."""
    found = [_samples(incast, switch, seed) for seed in incast.seeds]
    low = [share for victim, _ in found for share in victim if share < 1 / 2]
    return Victim(
        incast,
        below_half=tuple(sum(share < 1 / 2 for share in victim) for victim, _ in found),
        under_used=tuple(sum(share < FULL for share in victim) for victim, _ in found),
        share=fmean(low) if low else None,
        lasted=tuple(sum(share > 0 for share in receiver) for _, receiver in found),
    )


def _samples(incast: Incast, switch: Engine, seed: int) -> tuple[list[float], list[float]]:
    """Of the links of the second host and of the first, what is used of them in each millisecond of the incast."""
    packet = incast.packet_bytes
    # Below XON a link goes on in htsim, and here where no more than xon_bytes wait.
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
        window=incast.beside_window,
        recovery=_RECOVERY,
        congestion=incast.beside,
        seed=seed,
    )
    flows = Flows(
        fabric,
        [FlowSpec(source=host, destination=hosts[0], size=incast.size, start=begin) for host in senders],
        window=incast.window,
        recovery=_RECOVERY,
        congestion=incast.congestion,
        seed=seed,
    )
    victim: list[float] = []
    receiver: list[float] = []
    flows.run(begin)
    while len(victim) < _LIMIT and (not flows.finished or victim[-1] < FULL):
        before = sum(other.missing), sum(flows.missing)
        other.run((_BEGIN + len(victim) + 1) * _SAMPLE)
        victim.append((before[0] - sum(other.missing)) / full)
        receiver.append((before[1] - sum(flows.missing)) / full)
    return victim, receiver
