"""Emulated links, driven by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fanin.p4switch.engine.links import LinkProperties
from tests.p4switch.runtime.c_link import CLink


@pytest.fixture
def links() -> Iterator[Any]:
    opened: list[CLink] = []

    def link(properties: LinkProperties, stream: int = 0) -> CLink:
        opened.append(CLink(properties, stream))
        return opened[-1]

    yield link
    for one in opened:
        one.close()
