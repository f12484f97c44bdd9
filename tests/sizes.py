"""How much of what takes long is tried: less in `make test` than in `make test-long`."""

from __future__ import annotations

import os
from typing import TypeVar

Size = TypeVar("Size")


def sized(usual: Size, full: Size) -> Size:
    """`full` in `make test-long`, which runs tests marked `long` and property tests; `usual` otherwise."""
    return full if os.environ.get("FANIN_FULL_SIZE") else usual
