"""The switches that an experiment can be run on, and what suits each of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.tools import BMV2, SwitchKind
from fanin.testbed.switch_processes import Bmv2, P4Switch, SwitchLauncher
from fanin.workers.recovery import Pace

_FAST_LINK = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of switch: its process, and how workers send to it.

    rate: of links on which the packets' bytes, and not the switch, set the time; bits a second.
    """

    launcher: SwitchLauncher
    rate: int
    on_slow_links: Pace
    on_fast_links: Pace
    on_unlimited_links: Pace

    def pace(self, rate: int | None) -> Pace:
        """How workers send where the slowest link has `rate`: what is in flight fits into its queue."""
        if rate is None:
            return self.on_unlimited_links
        return self.on_fast_links if rate >= _FAST_LINK else self.on_slow_links

    def pace_of(self, settings: Settings) -> Pace:
        """How a point's workers send: what suits its links, but for what it says itself."""
        given = settings.recovery.model_dump() | {
            "window": settings.window,
            "segments": settings.segments,
            "checksums": settings.checksums,
        }
        said = {name: value for name, value in given.items() if value is not None}
        return replace(self.pace(settings.network.slowest_rate), **said)


def target(engine: SwitchKind) -> Target:
    """The target of this name.

    Raises:
        ToolError: BMv2 is not here.
    """
    match engine:
        case "embedded":
            return EMBEDDED
        case "bmv2":
            # A packet of 256 values takes BMv2 1 to 2 ms, and one of its ports queues 64 packets: a small window
            # fills both, a larger one only overflows them. It runs several switches on the cores of one machine,
            # so that a round trip varies by tenths of a second.
            pace = Pace(window=16, segments=1, offload=False, initial_rto=0.5, min_rto=0.1)
            return Target(
                Bmv2(BMV2.find()),
                rate=400_000,
                on_slow_links=pace,
                on_fast_links=pace,
                on_unlimited_links=pace,
            )
    assert_never(engine)


EMBEDDED = Target(
    P4Switch(),
    rate=100_000_000,
    # A frame of many segments saves time of the processor but waits at each hop until all of it has come: on slow
    # links few are better.
    on_slow_links=Pace(window=128, segments=32),
    # Eight of the largest superframes, each of which is on a link of 1 Gb/s for half a millisecond.
    on_fast_links=Pace(window=496, segments=62),
    # Four, and some more for a quarter of a megabyte to be sent at once: they keep everybody busy, the switch's slots
    # stay in its cache, and vectors have few exponents to announce ahead.
    on_unlimited_links=Pace(window=256, segments=62),
)
