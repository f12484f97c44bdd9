"""Animated drawings of all-reduces in virtual time: each packet on each link, several points on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.steps import buckets
from fanin.native.text import printable
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import Cluster
from fanin.simulator.links import Transit
from fanin.simulator.packets import Packets
from fanin.simulator.units import SECOND
from fanin.topologies.model import Topology
from fanin.topologies.units import TIMES, quantity_text
from fanin.workers.host_based.transport import DATA
from fanin.workers.wire import HEADERS, UDP_PORTS, UPDATE

MOST_FLIGHTS: Final = 3000  # in one drawing: browsers get slow

_ROUNDING = 1e-12  # seconds

Kind = Literal["values", "sums", "between hosts", "acknowledgements"]


class AnimationError(ValueError):
    """Something that cannot be drawn. The message explains what to do."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A packet on a link.

    Attributes:
        sender: The name of the node that sends it.
        receiver: The name of the node at the other end.
        begin: Seconds when its first bit leaves the sender.
        end: Seconds when the receiver has its last bit.
        kind: What it carries.
    """

    sender: str
    receiver: str
    begin: float
    end: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Recording:
    """The last all-reduce of a point.

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

    @property
    def early(self) -> float:
        """Return for how many seconds before time 0 other workers had begun."""
        return max(0.0, -min((flight.begin for flight in self.flights), default=0.0))


def record(title: str, settings: Settings, switch: Engine) -> Recording:
    """Run a point in virtual time and record its last all-reduce.

    The first one of a length differs: workers announce the scale of its values before they send any (docs/reference/
    protocol.md). Lost packets never arrive, so they are not recorded; what replaces them is.

    Args:
        title: What tells the point from others.
        settings: The point.
        switch: The program of its switches.

    Raises:
        AnimationError: The point runs live or has no single all-reduce, or there are too many packets.
        CollectiveError: A worker gives up.
        UnfinishedError: The run does not end.
        DeadlockError: Links pause one another in a circle.
        ControllerError: The controller fails.
        PythonFileError: The user's worker or controller fails.
    """
    if settings.world == "live":
        raise AnimationError("a live network is not recorded: add --set world=virtual")
    if settings.parallelism is not None:
        raise AnimationError("a step of a model cut among workers has no single all-reduce to draw")
    arrivals = _Arrivals()
    run_virtual(settings, switch, arrivals.watch, arrivals)
    return arrivals.recording(title, len(buckets(settings)))


class _Arrivals:
    """An observer that keeps what arrives, as arrays."""

    def __init__(self) -> None:
        self._seen: list[tuple[Transit, NDArray[np.int64], NDArray[np.uint8]]] = []
        self._cluster: Cluster | None = None

    def watch(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __call__(self, arrived: Transit, store: Packets) -> None:
        numbers = arrived.packets
        self._seen.append((arrived, store.lengths[numbers].copy(), store.rows[numbers, : HEADERS + 1].copy()))

    def recording(self, title: str, parts: int) -> Recording:
        """Return the packets of the last vector, which is summed in so many parts."""
        cluster = self._cluster
        assert cluster is not None
        first = min(station.began[-parts] for station in cluster.stations)
        last = max(station.began[-parts] for station in cluster.stations)
        end = max(station.ended[-1] for station in cluster.stations)
        directions = [link for link in cluster.topology.links for _ in range(2)]
        flights = []
        for arrived, lengths, headers in self._seen:
            within = (arrived.times > first * SECOND) & (arrived.times <= end * SECOND)
            for place in within.nonzero()[0].tolist():
                number, time = int(arrived.links[place]), int(arrived.times[place]) / SECOND - last
                link, ends = directions[number], cluster.network.link_ends[number]
                bits = 8 * (int(lengths[place]) + link.properties.virtual_overhead)
                rate = link.rate_bits_per_second
                took = link.properties.virtual_delay + (bits / rate if rate else 0)
                begin = time - took
                if begin > first - last - _ROUNDING:  # what was on its way before is of the barrier
                    flights.append(Flight(*ends, begin, time, _kind(headers[place].tobytes())))
            if len(flights) > MOST_FLIGHTS:
                raise AnimationError(
                    f"{title}: more than {MOST_FLIGHTS:,} packets; draw a smaller vector, such as --set size=16kB"
                )
        return Recording(title, cluster.topology, cluster.members, end - last, tuple(flights))


def _kind(frame: bytes) -> Kind:
    """Return what a frame carries, from its UDP ports and the first byte behind its headers."""
    ports = int.from_bytes(frame[34:36]), int.from_bytes(frame[36:38])
    first = frame[HEADERS]
    if any(port in UDP_PORTS for port in ports):
        return "values" if first >> 4 == UPDATE else "sums"
    return "between hosts" if first == DATA else "acknowledgements"


# -- drawing ---------------------------------------------------------------------------------------------------------

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


def draw(recordings: Sequence[Recording], seconds: float) -> str:
    """Return an SVG image in which packets move, with a panel for each recording and one clock for all.

    It needs no script (SVG 1.1, chapter 19), so that it also moves where a page shows it as an image.

    Args:
        recordings: At least one.
        seconds: How long the longest of them takes in the drawing.

    Raises:
        AnimationError: There are too many packets together.
    """
    if (count := sum(len(each.flights) for each in recordings)) > MOST_FLIGHTS:
        raise AnimationError(
            f"{count:,} packets are too many for one drawing ({MOST_FLIGHTS:,}); draw a smaller vector, such as "
            "--set size=16kB, or fewer points"
        )
    clock = _Clock(max(each.early for each in recordings), max(each.seconds for each in recordings), seconds)
    panels = [_Panel(each, _WIDTH * number, clock) for number, each in enumerate(recordings)]
    width, height = _WIDTH * len(panels), max(panel.bottom for panel in panels) + 64
    told = "; ".join(
        f"{each.title}: {quantity_text(each.seconds, TIMES)}, {len(each.flights)} packets on links"
        for each in recordings
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
    lines += _legend({flight.kind for each in recordings for flight in each.flights}, width / 2, height - 48)
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
    """A drawing of one recording, with its left edge at `left`."""

    def __init__(self, recording: Recording, left: float, clock: _Clock) -> None:
        self._recording, self._left, self._clock = recording, left, clock
        tiers = [
            *([switch.name for switch in tier] for tier in reversed(recording.network.tiers)),
            [host.name for host in recording.network.ranked_hosts],
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
        recording, clock, centre = self._recording, self._clock, self._left + _WIDTH / 2
        done = clock.share(recording.seconds)
        title = _escaped(recording.title)
        size = 18 if len(title) < _LONG else 13
        yield f'<text class="text" x="{centre:g}" y="34" font-size="{size}" font-weight="600">{title}</text>'
        yield (
            f'<text class="text end" x="{centre:g}" y="58">done after {quantity_text(recording.seconds, TIMES)}'
            f"{self._hidden_until(done)}</text>"
        )
        for link in recording.network.links:
            (x, y), (to_x, to_y) = self._places[link.a.node], self._places[link.b.node]
            yield f'<path class="link" d="M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}"/>'
        for flight in recording.flights:
            yield self._packet(flight)
        for name, (x, y) in self._places.items():
            yield (
                f'<rect class="box" x="{x - self._box / 2:.1f}" y="{y - 12:g}" width="{self._box:.1f}" height="24" '
                f'rx="5"/><text class="text" x="{x:.1f}" y="{y + 5:g}" font-size="12">{_escaped(name)}</text>'
            )
        received = defaultdict(list)
        for flight in recording.flights:
            if flight.kind != "acknowledgements":
                received[flight.receiver].append(flight.end)
        for name in recording.workers:
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
