"""DCTCP's use of a link over the queue above which packets are marked, compared with the sawtooth of its authors.

Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, section 3.3: all windows grow by a packet per round trip, and
are cut once when together they pass what the link and the threshold hold. The queue is a sawtooth, whose height follows
from the share of packets that are marked. With any number of senders it does not become empty if the threshold is at
least C * RTT / 7; a number near an eighth of (C * RTT + K) is the worst.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fanin.assurance.validation.theory.bottleneck import PACKET_BYTES, Bottleneck, Used
from fanin.assurance.validation.theory.derived import Derived
from fanin.experiments.scenario.tables.congestion import Congestion
from fanin.p4switch.engine.engine import Engine
from fanin.topologies.shapes import leaf_spine

RATE, FASTER = 10 * 10**9, 40 * 10**9  # bits/s, of the links between switches, and of those of hosts
DELAY = 12.5e-6  # s, of each of the four links there and the four back
ROUND_TRIP = 8 * DELAY + 8 * PACKET_BYTES * (2 / RATE + 2 / FASTER)  # s, of a packet alone
CAPACITY = RATE * ROUND_TRIP / 8 / PACKET_BYTES  # packets
KNEE = round(CAPACITY * PACKET_BYTES / 7)  # bytes
BEGIN, END = 20e-3, 40e-3  # s: when windows have settled, and when the run ends

# Windows grow after every round trip, as in the analysis, and begin near their share of the capacity.
CONTROL = Congestion(control="dctcp", initial_alpha=0.1, ssthresh=1, increase="always")
USED = (
    (1, 2_000),
    (1, 6_000),
    (1, KNEE),
    (16, 6_000),
    (16, KNEE),
    (16, 2 * KNEE),
)  # senders, and the threshold in bytes
QUEUES = ((1, KNEE), (1, 2 * KNEE), (1, 4 * KNEE))


def dctcp(switch: Engine) -> Iterator[Derived]:
    """Compare the use of a link of 10 Gb/s and 100 us of round trip, and the queue before it.

    Raises:
        UnfinishedError: The flows ended too early.
    """
    for senders, threshold in USED:
        yield Derived(
            what=f"DCTCP, {_senders(senders)}, marked from {threshold / 1e3:.1f} kB: link used",
            theory=sawtooth(senders, threshold).share,
            virtual=_used(senders, threshold, switch).share,
            form=".1%",
            lowest=-0.01,
            highest=0.01,
        )
    for senders, threshold in QUEUES:
        yield Derived(
            what=f"DCTCP, {_senders(senders)}, marked from {threshold / 1e3:.1f} kB: queue, kB",
            theory=sawtooth(senders, threshold).queue / 1e3,
            virtual=_used(senders, threshold, switch).queue / 1e3,
            form=".1f",
            lowest=-0.05,
            highest=0.05,
        )


def _senders(count: int) -> str:
    return "1 sender" if count == 1 else f"{count} senders"


def sawtooth(senders: int, threshold: float) -> Used:
    """Return how synchronized senders use the link, by the analysis."""
    most = CAPACITY + threshold / PACKET_BYTES
    window = most / senders
    # The share of marked packets: those of one round trip of each sawtooth, equation 6 of the paper.
    shares = np.linspace(0, 1, 100_001)
    alpha = shares[np.argmin(np.abs(shares**2 * (1 - shares / 4) - (2 * window + 1) / (window + 1) ** 2))]
    top = most + senders
    windows = np.linspace(
        top * (1 - alpha / 2), top, 10_001
    )  # all together, each as many round trips as the others
    trips = np.maximum(windows, CAPACITY)  # how long they take, in packets of the link
    used = windows.sum() / trips.sum()
    waiting = (np.maximum(windows - CAPACITY, 0) * trips).sum() / trips.sum()
    return Used(
        float(used), PACKET_BYTES * float(waiting + used / 2)
    )  # half of the packet that is being sent


def _used(senders: int, threshold: int, switch: Engine) -> Used:
    properties = {"delay": DELAY, "ecn_bytes": threshold}
    topology = leaf_spine(1, 2, senders, rate=FASTER, uplink_rate=RATE, properties=properties)
    hosts = [host.name for host in topology.ranked_hosts]
    (leaf, _), spine = topology.leaves, topology.tiers[1][0]
    bottleneck = Bottleneck(
        topology=topology, senders=hosts[:senders], receiver=hosts[senders], link=(leaf.name, spine.name)
    )
    control = CONTROL.model_copy(update={"initial_window": max(2, round(CAPACITY / senders))})
    return bottleneck.used(control, BEGIN, END, switch)
