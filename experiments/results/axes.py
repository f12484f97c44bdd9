"""What a column of results is called in a figure, and in which unit it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_LABELS = {
    "median_seconds": "time of an all-reduce, median",
    "seconds": "time of an all-reduce",
    "p95_seconds": "time of an all-reduce, 95th percentile",
    "min_seconds": "time of an all-reduce, shortest",
    "max_seconds": "time of an all-reduce, longest",
    "closed_form_seconds": "time of an all-reduce, closed form",
    "run_seconds": "time that the run took",
    "goodput_bits_per_second": "goodput of each worker",
    "wire_bytes_per_worker": "on the wire, each worker",
    "packets_per_worker": "packets, each worker",
    "retransmissions": "packets sent again, by all workers",
    "size": "vector",
    "loss": "packets lost on each link",
    "oversubscription": "oversubscription of the uplinks",
    "window": "window (packets)",
    "values": "values in a packet",
    "packet_hops": "packets over all links",
    "elements": "vector (float32 values)",
}
_PREFIXES = {"G": 1e9, "M": 1e6, "k": 1e3, "": 1.0}
_SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}
_RATES = {f"{prefix}b/s": factor for prefix, factor in _PREFIXES.items()}
_BYTES = {f"{prefix}B": factor for prefix, factor in _PREFIXES.items()}
_SHARES = {"%": 0.01}
_TIMES = ("seconds", "delay", "jitter", "displacement", "rto", "coalescing", "granularity", "give_up")
# Units by how a column's name ends, the largest first.
_UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(_TIMES, _SECONDS),
    **dict.fromkeys(("bits_per_second", "rate"), _RATES),
    **dict.fromkeys(("bytes", "bytes_per_worker", "size", "overhead"), _BYTES),
    **dict.fromkeys(("loss", "corruption", "duplication", "reordering", "accuracy"), _SHARES),
}


def scale(name: str, values: Sequence[float]) -> tuple[float, str]:
    """What to divide a column's values by, and the axis's label with its unit."""
    endings = [ending for ending in _UNITS if name == ending or name.endswith(f"_{ending}")]
    if not endings:
        return 1.0, column_label(name)
    units = _UNITS[max(endings, key=len)]
    largest = max((abs(value) for value in values), default=0.0)
    fitting = (unit for unit, factor in units.items() if largest >= factor)
    unit = next(fitting, list(units)[-1])
    return units[unit], f"{column_label(name)} ({unit})"


def value_label(column: str, value: object) -> str:
    """Of a line: words speak for themselves, numbers do not."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{column_label(column)} {value}"
    factor, label = scale(column, [value])
    return f"{label} {value / factor:g}"


def column_label(name: str) -> str:
    """Without its unit."""
    return _LABELS.get(name, name.replace("_", " "))


def plain(value: float, _position: int) -> str:
    """A number beside an axis, as matplotlib's FuncFormatter wants it."""
    return f"{value:,.0f}" if value >= 10 else f"{value:g}"
