"""The properties of this machine that benchmark results depend on: its processor, caches, and memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fanin.experiments.results.provenance import machine
from fanin.topologies.units import BYTES, quantity, quantity_text

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_LEAST = (
    64 << 20
)  # bytes copied at a time, and at least the size of the largest cache: two arrays are twice as large
_ROUNDS = 3


def host() -> dict[str, Any]:
    """Return `machine()`, the caches that its first core has or shares (bytes), and its memory bandwidth."""
    found = caches()
    return {
        **machine(),
        "caches": found,
        "memory_bytes_per_second": memory_bandwidth(max([_LEAST, *found.values()])),
    }


def caches(folder: Path = _CACHES) -> dict[str, int]:
    """Return the size of each cache in bytes, by the name that lscpu gives it; empty if the kernel does not tell."""
    found = {}
    for index in sorted(folder.glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
        found[f"L{level}{suffix}"] = int(quantity(f"{size}iB", BYTES, "32KiB"))
    return found


def memory_bandwidth(size: int) -> float:
    """Return the bytes read and written per second when copying `size` bytes, the best of three times."""
    source, copy = np.ones(size, np.uint8), np.zeros(size, np.uint8)
    fastest = float("inf")
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        np.copyto(copy, source)
        fastest = min(fastest, time.perf_counter() - begun)
    return 2 * size / fastest


def in_words(of: Mapping[str, Any]) -> str:
    """Describe the result of `host` in one line."""
    sizes = ", ".join(f"{name} {size >> 10:,} KiB" for name, size in of["caches"].items())
    memory = quantity_text(of["memory_bytes_per_second"], BYTES)
    return f"{of['processor']}, {of['cores']} cores; caches: {sizes or 'not known'}; memory copies {memory}/s"
