"""Animated drawings of all-reduces in virtual time: each packet on each link, several points on one clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import numpy as np

from fanin.experiments.virtual.recording import Flight, Kind, PacketRecording
from fanin.native.text import printable
from fanin.topologies.units import TIMES, quantity_text

MOST_FLIGHTS: Final = 3000  # in one drawing: browsers get slow

_WIDTH, _MARGIN, _TOP, _TIER, _HOST = 440, 50, 96, 84, 30  # pixels
_HOLD = 2.0  # seconds at the end, before it begins again
_ASIDE = 4.0  # pixels from the middle of a link to the packets of each direction
_STEPS = 24  # of a bar that fills
_LEGEND = 208  # pixels of a word of the legend
_LONG = 30  # characters of a title in smaller letters
_WORDS: Mapping[Kind, str] = {
    "values": "values to add up",
    "sums": "sums",
    "between hosts": "values between workers",
    "acknowledgements": "acknowledgements",
    "other traffic": "packets of others",
}
_STYLE = """
.page { fill: #ffffff } .text { fill: #1f2328 } .quiet { fill: #59636e }
.link { stroke: #d1d9e0; stroke-width: 2 } .box { fill: #f6f8fa; stroke: #59636e; stroke-width: 1.5 }
.empty { fill: #d1d9e0 } .full { fill: #1a7f37 }
.values { fill: #0969da } .sums { fill: #1a7f37 } .between { fill: #bc4c00 } .acknowledgements { fill: #8250df }
.other { fill: #59636e } .lost { stroke: #cf222e; stroke-width: 2; fill: none }
@media (prefers-color-scheme: dark) {
.page { fill: #151b23 } .text { fill: #f0f6fc } .quiet { fill: #9198a1 }
.link { stroke: #3d444d } .box { fill: #212830; stroke: #9198a1 }
.empty { fill: #3d444d } .full { fill: #3fb950 }
.values { fill: #4493f8 } .sums { fill: #3fb950 } .between { fill: #f0883e } .acknowledgements { fill: #ab7df8 }
.other { fill: #9198a1 } .lost { stroke: #ff7b72 }
}
@media (prefers-reduced-motion: reduce) { .packet { display: none } .end { visibility: visible } }
"""


class AnimationError(ValueError):
    """Something that cannot be drawn. The message explains what to do."""


def draw(scenes: Sequence[PacketRecording], seconds: float) -> str:
    """Return an SVG image in which packets move, with a panel for each all-reduce and one clock for all.

    It needs no script (SVG 1.1, chapter 19), so that it also moves where a page shows it as an image.

    Args:
        scenes: At least one all-reduce; see PacketRecording.last_all_reduce.
        seconds: How long the longest of them takes in the drawing.

    Raises:
        AnimationError: There are too many packets together.
    """
    if (count := sum(len(each.flights) for each in scenes)) > MOST_FLIGHTS:
        raise AnimationError(
            f"{count:,} packets on links are too many for one drawing ({MOST_FLIGHTS:,}); choose a smaller vector, "
            "such as --set size=16kB, or fewer points"
        )
    early = max(-min((flight.begin for flight in each.flights), default=0.0) for each in scenes)
    clock = _Clock(max(0.0, early), max(each.seconds for each in scenes), seconds)
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
    shown = {flight.kind for each in scenes for flight in each.flights}
    lost = any(flight.lost for each in scenes for flight in each.flights)
    lines += _legend([kind for kind in _WORDS if kind in shown], width / 2, height - 48, lost=lost)
    lines += clock.lines(40, height - 22, width - 80)
    return "\n".join([*lines, "</svg>", ""])


def _escaped(text: str) -> str:
    return escape(printable(text))


def _legend(kinds: Sequence[Kind], x: float, y: float, *, lost: bool) -> Iterator[str]:
    left = x - _LEGEND / 2 * (len(kinds) + lost) + 14
    for kind in kinds:
        yield f'<circle class="{kind.split()[0]}" cx="{left:g}" cy="{y - 5:g}" r="5"/>'
        yield f'<text class="quiet" x="{left + 12:g}" y="{y:g}" text-anchor="start">{_WORDS[kind]}</text>'
        left += _LEGEND
    if lost:
        yield f'<path class="lost" d="M{left - 5:g} {y - 10:g}l10 10m0 -10l-10 10"/>'
        yield f'<text class="quiet" x="{left + 12:g}" y="{y:g}" text-anchor="start">lost</text>'


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

    def __init__(self, scene: PacketRecording, left: float, clock: _Clock) -> None:
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
            yield from self._packet(flight)
        for name, (x, y) in self._places.items():
            yield (
                f'<rect class="box" x="{x - self._box / 2:.1f}" y="{y - 12:g}" width="{self._box:.1f}" height="24" '
                f'rx="5"/><text class="text" x="{x:.1f}" y="{y + 5:g}" font-size="12">{_escaped(name)}</text>'
            )
        received: defaultdict[str, dict[tuple[str, int], float]] = defaultdict(dict)
        for flight in scene.flights:
            if flight.kind in ("sums", "between hosts") and not flight.lost:
                received[flight.receiver].setdefault((flight.stream, flight.number), flight.end)
        for name in scene.workers:
            yield from self._bar(name, [*received[name].values()])

    def _hidden_until(self, share: float) -> str:
        return (
            f'<animate attributeName="visibility" values="hidden;visible" keyTimes="0;{share:.4f}" '
            f'calcMode="discrete" {self._clock.repeated}/>'
        )

    def _packet(self, flight: Flight) -> Iterator[str]:
        """Yield a dot that moves along a link, and a cross where the packet is lost: in its queue, or half way."""
        (x, y), (to_x, to_y) = self._places[flight.sender], self._places[flight.receiver]
        across, along = to_x - x, to_y - y
        # Each direction has its side of the link.
        aside = _ASIDE / math.hypot(across, along)
        from_x, from_y = x - aside * along, y + aside * across
        way = (0.25 if flight.lost == "queue drop" else 0.5) if flight.lost else 1.0
        end_x, end_y = from_x + way * across, from_y + way * along
        begin = self._clock.share(flight.begin)
        end = self._clock.share(flight.begin + way * (flight.end - flight.begin))
        kind, radius = flight.kind.split()[0], 2 if flight.kind == "acknowledgements" else 4
        if end > begin:
            yield (
                f'<circle class="packet {kind}" r="{radius}" visibility="hidden"><animateMotion path="M{from_x:.1f} '
                f'{from_y:.1f}L{end_x:.1f} {end_y:.1f}" keyPoints="0;0;1;1" keyTimes="0;{begin:.5f};{end:.5f};1" '
                f'calcMode="linear" {self._clock.repeated}/><animate attributeName="visibility" '
                f'values="hidden;visible;hidden" keyTimes="0;{begin:.5f};{end:.5f}" calcMode="discrete" '
                f"{self._clock.repeated}/></circle>"
            )
        if flight.lost:
            yield (
                f'<path class="lost end" d="M{end_x - 5:.1f} {end_y - 5:.1f}l10 10m0 -10l-10 10">'
                f"{self._hidden_until(end)}</path>"
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
