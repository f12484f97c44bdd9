"""How much of what takes long is tried: less in `make test` than in `make test-long`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import pytest

Size = TypeVar("Size")


def sized(usual: Size, full: Size) -> Size:
    """`full` in `make test-long`, which runs tests marked `long` and property tests; `usual` otherwise."""
    return full if os.environ.get("FANIN_FULL_SIZE") else usual


def few(cases: Sequence[pytest.Item], count: int) -> list[pytest.Item]:
    """So many cases of a parametrized test that every value of every parameter occurs in about as many of them."""
    first = crc32(cases[0].nodeid.encode()) / 2**32  # another one for each test
    left = sorted(
        enumerate(cases), key=lambda case: (first + case[0] * 0.618) % 1
    )  # neighbours are far apart
    chosen = []
    occurs: Counter[tuple[str, int]] = Counter()
    while left and len(chosen) < count:
        case = min(left, key=lambda case: sum(occurs[value] for value in _values(case[1])))
        left.remove(case)
        occurs.update(_values(case[1]))
        chosen.append(case)
    return [item for _, item in sorted(chosen, key=lambda case: case[0])]


def _values(case: pytest.Item) -> list[tuple[str, int]]:
    return list(case.callspec.indices.items()) if hasattr(case, "callspec") else []
