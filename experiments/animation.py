"""Animated drawings of all-reduces in virtual time: each packet on each link, several points on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Final

import numpy as np

from fanin.experiments.virtual.recording import Flight, Kind, PacketRecording
from fanin.native.text import printable
from fanin.topologies.model import Topology
from fanin.topologies.units import TIMES, quantity_text

MOST_FLIGHTS: Final = 3000  # in one drawing: browsers get slow

_ROUNDING = 1e-12  # seconds

_WIDTH, _MARGIN, _TOP, _TIER, _HOST = 440, 50, 96, 84, 30  # pixels
_HOLD = 2.0  # seconds at the end, before it begins again
_STEPS = 24  # of a bar that fills
_LEGEND = 208  # pixels of a word of the legend
_LONG = 30  # characters of a title in smaller letters
_WORDS: Mapping[Kind, str] = {
    "values": "values to add up",
    "sums": "sums",
    "between hosts": "values between workers",
    "acknowledgements": "acknowledgements",
}
_STYLE = """
.page { fill: #ffffff } .text { fill: #1f2328 } .quiet { fill: #59636e }
.link { stroke: #d1d9e0; stroke-width: 2 } .box { fill: #f6f8fa; stroke: #59636e; stroke-width: 1.5 }
.empty { fill: #d1d9e0 } .full { fill: #1a7f37 }
.values { fill: #0969da } .sums { fill: #1a7f37 } .between { fill: #bc4c00 } .acknowledgements { fill: #8250df }
@media (prefers-color-scheme: dark) {
.page { fill: #151b23 } .text { fill: #f0f6fc } .quiet { fill: #9198a1 }
.link { stroke: #3d444d } .box { fill: #212830; stroke: #9198a1 }
.empty { fill: #3d444d } .full { fill: #3fb950 }
.values { fill: #4493f8 } .sums { fill: #3fb950 } .between { fill: #f0883e } .acknowledgements { fill: #ab7df8 }
}
@media (prefers-reduced-motion: reduce) { .packet { display: none } .end { visibility: visible } }
"""


class AnimationError(ValueError):
    """Something that cannot be drawn. The message explains what to do."""


@dataclass(frozen=True, slots=True)
class Scene:
    """The last all-reduce of a recording, which differs from the first one.

    Workers announce the scale of the values of a length before they send any (docs/reference/protocol.md).

    Attributes:
        title: What tells it from other points.
        network: The network.
        workers: The names of the hosts that take part, by rank.
        seconds: How long the all-reduce took after its last worker had begun, as results count it.
        flights: What its links carried, by the time at which it arrived. Time 0 is when the last worker began.
    """

    title: str
    network: Topology
    workers: tuple[str, ...]
    seconds: float
    flights: tuple[Flight, ...]

    @classmethod
    def of(cls, recording: PacketRecording) -> Scene:
        """Return the last all-reduce of a recording, with all its buckets.

        Raises:
            AnimationError: There are too many packets.
        """
        calls = [call for call in recording.calls if call.repetition == recording.calls[-1].repetition]
        begun = [call.begin for call in calls if call.bucket == 1]
        first, last, end = min(begun), max(begun), max(call.end for call in calls)
        flights = tuple(
            replace(each, begin=each.begin - last, sent=each.sent - last, end=each.end - last)
            for each in recording.flights
            # What was on its way before is of the barrier.
            if each.end <= end + _ROUNDING and each.begin > first - _ROUNDING
        )
        if len(flights) > MOST_FLIGHTS:
            raise AnimationError(
                f"{recording.title}: more than {MOST_FLIGHTS:,} packets; draw a smaller vector, such as --set size=16kB"
            )
        return cls(recording.title, recording.network, recording.workers, end - last, flights)

    @property
    def early(self) -> float:
        """Return for how many seconds before time 0 other workers had begun."""
        return max(0.0, -min((flight.begin for flight in self.flights), default=0.0))


def draw(scenes: Sequence[Scene], seconds: float) -> str:
    """Return an SVG image in which packets move, with a panel for each all-reduce and one clock for all.

    It needs no script (SVG 1.1, chapter 19), so that it also moves where a page shows it as an image.

    Args:
        scenes: At least one.
        seconds: How long the longest of them takes in the drawing.

    Raises:
        AnimationError: There are too many packets together.
    """
    if (count := sum(len(each.flights) for each in scenes)) > MOST_FLIGHTS:
        raise AnimationError(
            f"{count:,} packets are too many for one drawing ({MOST_FLIGHTS:,}); draw a smaller vector, such as "
            "--set size=16kB, or fewer points"
        )
    clock = _Clock(max(each.early for each in scenes), max(each.seconds for each in scenes), seconds)
    panels = [_Panel(each, _WIDTH * number, clock) for number, each in enumerate(scenes)]
    width, height = _WIDTH * len(panels), max(panel.bottom for panel in panels) + 64
    told = "; ".join(
        f"{each.title}: {quantity_text(each.seconds, TIMES)}, {len(each.flights)} packets on links"
        for each in scenes
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="system-ui, \'Segoe UI\', Helvetica, Arial, sans-serif" font-size="14" '
        'text-anchor="middle" role="img" aria-labelledby="title">',
        f'<title id="title">{_escaped(told)}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="8"/>',
    ]
    for panel in panels:
        lines += panel.lines()
    lines += _legend({flight.kind for each in scenes for flight in each.flights}, width / 2, height - 48)
    lines += clock.lines(40, height - 22, width - 80)
    return "\n".join([*lines, "</svg>", ""])


def _escaped(text: str) -> str:
    return escape(printable(text))


def _legend(kinds: Iterable[Kind], x: float, y: float) -> Iterator[str]:
    shown = [kind for kind in _WORDS if kind in kinds]
    begin = x - _LEGEND / 2 * len(shown)
    for number, kind in enumerate(shown):
        left = begin + _LEGEND * number + 14
        yield f'<circle class="{kind.split()[0]}" cx="{left:g}" cy="{y - 5:g}" r="5"/>'
        yield f'<text class="quiet" x="{left + 12:g}" y="{y:g}" text-anchor="start">{_WORDS[kind]}</text>'


class _Clock:
    """Time of the recordings as a share of the time of the drawing, which begins again at its end."""

    def __init__(self, early: float, longest: float, seconds: float) -> None:
        self._early, self._longest, self._seconds = early, longest, seconds
        self.repeated = f'dur="{seconds + _HOLD:g}s" repeatCount="indefinite"'

    def share(self, time: float) -> float:
        passed = (self._early + time) / (self._early + self._longest)
        return passed * self._seconds / (self._seconds + _HOLD)

    def lines(self, x: float, y: float, width: float) -> Iterator[str]:
        """Yield a bar that shows how far the time is."""
        times = f"0;{self.share(self._longest):.4f};1"
        zero = x + width * self._early / (self._early + self._longest)
        yield f'<rect class="empty" x="{x:g}" y="{y:g}" width="{width:g}" height="4" rx="2"/>'
        yield (
            f'<rect class="text" x="{x:g}" y="{y:g}" width="{width:g}" height="4" rx="2"><animate '
            f'attributeName="width" values="0;{width:g};{width:g}" keyTimes="{times}" {self.repeated}/></rect>'
        )
        yield (
            f'<text class="quiet" x="{x + width:g}" y="{y + 18:g}" font-size="12" text-anchor="end">'
            f'{quantity_text(self._longest, TIMES)}</text><text class="quiet" x="{zero:.1f}" y="{y + 18:g}" '
            'font-size="12">0</text>'
        )


class _Panel:
    """A drawing of one all-reduce, with its left edge at `left`."""

    def __init__(self, scene: Scene, left: float, clock: _Clock) -> None:
        self._scene, self._left, self._clock = scene, left, clock
        tiers = [
            *([switch.name for switch in tier] for tier in reversed(scene.network.tiers)),
            [host.name for host in scene.network.ranked_hosts],
        ]
        room = _WIDTH - 2 * _MARGIN
        self._places = {
            name: (left + _MARGIN + room * (number + 0.5) / len(tier), _TOP + _TIER * row)
            for row, tier in enumerate(tiers)
            for number, name in enumerate(tier)
        }
        self._box = min(72.0, room / max(map(len, tiers)) - 4)
        self.bottom = _TOP + _TIER * (len(tiers) - 1) + 40

    def lines(self) -> Iterator[str]:
        scene, clock, centre = self._scene, self._clock, self._left + _WIDTH / 2
        done = clock.share(scene.seconds)
        title = _escaped(scene.title)
        size = 18 if len(title) < _LONG else 13
        yield f'<text class="text" x="{centre:g}" y="34" font-size="{size}" font-weight="600">{title}</text>'
        yield (
            f'<text class="text end" x="{centre:g}" y="58">done after {quantity_text(scene.seconds, TIMES)}'
            f"{self._hidden_until(done)}</text>"
        )
        for link in scene.network.links:
            (x, y), (to_x, to_y) = self._places[link.a.node], self._places[link.b.node]
            yield f'<path class="link" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'
        for flight in scene.flights:
            yield self._packet(flight)
        for name, (x, y) in self._places.items():
            yield (
                f'<rect class="box" x="{x - self._box / 2:.1f}" y="{y - 12:g}" width="{self._box:.1f}" height="24" '
                f'rx="5"/><text class="text" x="{x:.1f}" y="{y + 5:g}" font-size="12">{_escaped(name)}</text>'
            )
        received = defaultdict(list)
        for flight in scene.flights:
            if flight.kind != "acknowledgements":
                received[flight.receiver].append(flight.end)
        for name in scene.workers:
            yield from self._bar(name, received[name])

    def _hidden_until(self, share: float) -> str:
        return (
            f'<animate attributeName="visibility" values="hidden;visible" keyTimes="0;{share:.4f}" '
            f'calcMode="discrete" {self._clock.repeated}/>'
        )

    def _packet(self, flight: Flight) -> str:
        (x, y), (to_x, to_y) = self._places[flight.sender], self._places[flight.receiver]
        begin, end = self._clock.share(flight.begin), self._clock.share(flight.end)
        kind, radius = flight.kind.split()[0], 2 if flight.kind == "acknowledgements" else 4
        return (
            f'<circle class="packet {kind}" r="{radius}" visibility="hidden"><animateMotion path="M{x:.1f} {y:.1f}'
            f'L{to_x:.1f} {to_y:.1f}" keyPoints="0;0;1;1" keyTimes="0;{begin:.5f};{end:.5f};1" calcMode="linear" '
            f'{self._clock.repeated}/><animate attributeName="visibility" values="hidden;visible;hidden" '
            f'keyTimes="0;{begin:.5f};{end:.5f}" calcMode="discrete" {self._clock.repeated}/></circle>'
        )

    def _bar(self, name: str, arrivals: Sequence[float]) -> Iterator[str]:
        """Yield a bar below a worker that fills with what the worker receives."""
        (x, y), width = self._places[name], self._box
        at = f'x="{x - width / 2:.1f}" y="{y + 17:g}" height="5" rx="2"'
        yield f'<rect class="empty" {at} width="{width:.1f}"/>'
        if not arrivals:
            return
        steps = np.linspace(0, len(arrivals) - 1, min(_STEPS, len(arrivals))).round().astype(int).tolist()
        shares = [self._clock.share(arrivals[step]) for step in steps]
        widths = [width * (step + 1) / len(arrivals) for step in steps]
        values = ";".join(["0", *(f"{each:.1f}" for each in widths)])
        times = ";".join(["0", *(f"{each:.4f}" for each in shares)])
        yield (
            f'<rect class="full" {at} width="{width:.1f}"><animate attributeName="width" values="{values}" '
            f'keyTimes="{times}" calcMode="discrete" {self._clock.repeated}/></rect>'
        )
