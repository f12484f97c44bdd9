"""IPv4 routing (tables.p4) with tables of many sizes: their entries, and packets that hit them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.bench.switch import frames
from fanin.assurance.bench.switch.native import Traffic
from fanin.native.text import counted
from fanin.p4compiler import Compiled, compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import ActionCall, Entry, EntryKey, Exact, Lpm, Match, Ternary

TABLE = "ingress.routes"
PORTS = 2
_FRAMES = 1 << 15  # different frames through each port, so that their entries do not fit a cache
_BURST = 32
_PAYLOAD = 18  # bytes: the shortest frame
_SUPER_FRAMES, _SUPER_BURST = 64, 2
_SEGMENTS, _SEGMENT = 60, 1000  # of a superframe; payload bytes of each
_GATEWAY = 0x02_00_00_00_00_01
_RULE_FIELDS = (
    ("source", 32),
    ("destination", 32),
    ("protocol", 8),
    ("source_port", 16),
    ("destination_port", 16),
)

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Routes:
    """A table of `count` entries of a kind: lpm, exact (host routes) or ternary (rules, each with its own mask)."""

    kind: str
    count: int

    def __str__(self) -> str:
        return f"IPv4 routing, {counted(self.count, f'{self.kind} entry', f'{self.kind} entries')}"

    @property
    def program(self) -> Compiled:
        """Return tables.p4 with that kind of table, compiled."""
        return _program(self.kind)

    def entries(self) -> list[Entry]:
        """Return the entries, which forward through different ports."""
        values, masks = self._keys()
        matches: list[tuple[Match, ...]] = []
        match self.kind:
            case "lpm":
                pairs = zip(values["destination"].tolist(), masks["destination"].tolist(), strict=True)
                matches = [(Lpm(value, mask.bit_count()),) for value, mask in pairs]
            case "exact":
                matches = [(Exact(value),) for value in values["destination"].tolist()]
            case _:
                columns = [zip(values[n].tolist(), masks[n].tolist(), strict=True) for n, _ in _RULE_FIELDS]
                matches = [
                    tuple(Ternary(value, mask) for value, mask in row) for row in zip(*columns, strict=True)
                ]
        rules = self.kind == "ternary"
        calls = [ActionCall("ingress.forward", (_GATEWAY + port, port)) for port in range(1, PORTS + 1)]
        return [
            Entry(EntryKey(match, 1 + number if rules else 0), calls[number % PORTS])
            for number, match in enumerate(matches)
        ]

    def traffic(self, interfaces: Sequence[str], *, superframes: bool = False) -> Traffic:
        """Return frames for each of the interfaces, each hitting an entry chosen at random. Superframes are UDP."""
        draw = np.random.Generator(np.random.PCG64(2))
        values, masks = self._keys()
        count = PORTS * (_SUPER_FRAMES if superframes else _FRAMES)
        chosen = draw.integers(0, self.count, count)
        fields = {}
        for name, width in _RULE_FIELDS:
            free = draw.integers(0, 1 << width, count)
            fields[name] = values[name][chosen] | free & ~masks[name][chosen]
        fields["to_mac"] = fields["from_mac"] = np.full(count, _GATEWAY)
        payload = _SEGMENTS * _SEGMENT if superframes else _PAYLOAD
        if superframes:
            fields["protocol"] = np.full(count, 17)
        made = frames.headers(fields, payload)
        virtio = frames.superframes(made, _SEGMENT) if superframes else frames.plain(count)
        whole = np.concatenate([virtio, made, np.zeros((count, payload), np.uint8)], axis=1)
        return Traffic(
            interfaces[:PORTS],
            whole.reshape(PORTS, count // PORTS, -1),
            burst=_SUPER_BURST if superframes else _BURST,
        )

    def _keys(self) -> tuple[dict[str, Numbers], dict[str, Numbers]]:
        """Return value and mask of each entry in each field, [count]."""
        draw = np.random.Generator(np.random.PCG64(1))
        masks = {name: np.zeros(self.count, np.int64) for name, _ in _RULE_FIELDS}
        match self.kind:
            case "lpm":
                # Most prefixes have 24 bits, as in the Internet's tables; no two are the same.
                lengths = np.where(draw.random(self.count) < 0.5, 24, draw.integers(16, 33, self.count))
                masks["destination"] = 0xFFFFFFFF << (32 - lengths) & 0xFFFFFFFF
                addresses = _distinct(draw, self.count, 24) << 8
                values = {"destination": addresses & masks["destination"]}
                _, first = np.unique(values["destination"] << 6 | lengths, return_index=True)
                double = np.setdiff1d(np.arange(self.count), first)
                masks["destination"][double] = 0xFFFFFFFF
                values["destination"][double] = addresses[double] | 1
            case "exact":
                masks["destination"] = np.full(self.count, 0xFFFFFFFF)
                values = {"destination": _distinct(draw, self.count, 24) << 8 | 1}
            case _:
                masks = {name: draw.integers(1, 1 << width, self.count) for name, width in _RULE_FIELDS}
                values = {
                    name: draw.integers(0, 1 << width, self.count) & masks[name]
                    for name, width in _RULE_FIELDS
                }
        zero = np.zeros(self.count, np.int64)
        return {name: values.get(name, zero) for name, _ in _RULE_FIELDS}, masks


ROUTES = (
    Routes("lpm", 1),
    Routes("lpm", 1_000),
    Routes("lpm", 100_000),
    Routes("exact", 1_000_000),
    Routes("ternary", 1_000),
)


@cache
def _program(kind: str) -> Compiled:
    macros = {"lpm": {}, "exact": {"HOSTS": ""}, "ternary": {"RULES": ""}}
    return compile_once(Path(__file__).with_name("tables.p4"), defines=macros[kind])


def _distinct(draw: np.random.Generator, count: int, bits: int) -> Numbers:
    return draw.choice(1 << bits, count, replace=False).astype(np.int64)


def switch(routes: Routes) -> Engine:
    """Return a switch with those routes."""
    engine = Engine.load(routes.program.device_config())
    with engine.lock:
        for entry in routes.entries():
            engine.table(TABLE).insert(entry)
    return engine
