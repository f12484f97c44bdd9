"""The switches on which an experiment can run, and how workers send to each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tools import BMV2, SwitchKind
from fanin.testbed.switch_processes import Bmv2, P4Switch, SwitchLauncher
from fanin.workers.recovery import Pace
from fanin.workers.udp import receive_buffer

_FAST_LINK = 1_000_000_000
# Nearly all slots of a switch. On links without a rate, processes share a few cores and take turns. With fewer packets
# in flight, turns are shorter, and cost more than the packets. A vector of 1 MB fits.
_LARGE_WINDOW = 992
_BUFFERED = 2304  # bytes that the kernel counts for a packet that is buffered; half of it in a superframe


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of switch.

    Attributes:
        launcher: Starts its process.
        rate: Rate of links in bits/s at which the packets' bytes determine the time, and not the switch.
        on_slow_links: How workers send on links below 1 Gb/s.
        on_fast_links: How workers send on links of 1 Gb/s or more.
        on_unlimited_links: How workers send on links without a rate.
    """

    launcher: SwitchLauncher
    rate: int
    on_slow_links: Pace
    on_fast_links: Pace
    on_unlimited_links: Pace

    def pace(self, rate: int | None) -> Pace:
        """Return how workers send if the slowest link has `rate`, so that packets in flight fit into its queue."""
        if rate is None:
            return self.on_unlimited_links
        return self.on_fast_links if rate >= _FAST_LINK else self.on_slow_links

    def live_pace(self, rate: int | None) -> Pace:
        """Return how workers of a live network send: as pace(), with more in flight if receive buffers hold it."""
        pace = self.pace(rate)
        roomy = rate is None and pace.offload and receive_buffer() >= _LARGE_WINDOW * _BUFFERED
        return replace(pace, window=_LARGE_WINDOW) if roomy else pace

    def pace_of(self, settings: Settings) -> Pace:
        """Return how a point's workers send: what suits its links, unless the point sets values itself."""
        given = settings.recovery.model_dump() | {
            "window": settings.window,
            "segments": settings.segments,
            "checksums": settings.checksums,
        }
        pace = replace(
            self.pace(settings.network.slowest_rate),
            **{name: value for name, value in given.items() if value is not None},
        )
        # A timeout that the scenario leaves out gives way to the one that it sets.
        if settings.recovery.initial_rto is None:
            return replace(pace, initial_rto=max(pace.initial_rto, pace.min_rto))
        return replace(pace, min_rto=min(pace.min_rto, pace.initial_rto))


def target(engine: SwitchKind) -> Target:
    """Return the target of this name.

    Raises:
        ToolError: If BMv2 is not installed.
    """
    match engine:
        case "embedded":
            return EMBEDDED
        case "bmv2":
            # A packet of 256 values takes BMv2 1 to 2 ms, and each of its ports queues 64 packets. A small window keeps
            # both full, a larger one only overflows them. Several switches share the cores of one machine, so that
            # round-trip times vary by tenths of a second.
            pace = Pace(
                window=16, segments=1, offload=False, initial_rto=0.5, min_rto=0.1, growth=BMV2_GROWTH
            )
            return Target(
                Bmv2(BMV2.find()),
                rate=400_000,
                on_slow_links=pace,
                on_fast_links=pace,
                on_unlimited_links=pace,
            )
    assert_never(engine)


# BMv2 ends if a packet becomes more than this longer than it came (docs/reference/bmv2.md).
BMV2_GROWTH = 512

EMBEDDED = Target(
    P4Switch(),
    rate=100_000_000,
    # A frame of many segments saves processor time, but waits at each hop until all of it has arrived: on slow links
    # frames should be small.
    on_slow_links=Pace(window=128, segments=32),
    # Eight of the largest superframes, each of which takes half a millisecond on a link of 1 Gb/s.
    on_fast_links=Pace(window=496, segments=62),
    # Four superframes, and a bit more for a quarter of a megabyte to be sent at once: what the receive buffers of users
    # other than root hold.
    on_unlimited_links=Pace(window=256, segments=62),
)
