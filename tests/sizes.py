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
    """So many cases of a parametrized test, with as many values of its parameters as possible, all about as often."""
    if len(cases) <= count or not hasattr(cases[0], "callspec"):
        return list(cases)[:count]
    # By identity: all cases have the same object, which may have no hash, or take long to compare.
    values = [[(name, id(value)) for name, value in case.callspec.params.items()] for case in cases]
    first = crc32(cases[0].nodeid.encode()) / 2**32  # another one for each test
    left = sorted(range(len(cases)), key=lambda case: (first + case * 0.618) % 1)  # neighbours are far apart
    chosen: list[int] = []
    occurs: Counter[tuple[str, int]] = Counter()

    def repeats(case: int) -> tuple[int, int]:
        often = [occurs[value] for value in values[case]]
        return -often.count(0), sum(often)

    while len(chosen) < count:
        chosen.append(min(left, key=repeats))
        left.remove(chosen[-1])
        occurs.update(values[chosen[-1]])
    return [cases[case] for case in sorted(chosen)]
