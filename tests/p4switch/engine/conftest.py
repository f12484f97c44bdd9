"""Engines for small P4 programs, compiled by p4compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from p4compiler import compile_file
from p4switch.engine.engine import Engine
from p4switch.ports.links import LinkProperties
from tests.p4switch.engine.c_link import CLink

PROGRAMS = Path(__file__).parent / "programs"
CPU_PORT = 255


@pytest.fixture(scope="session")
def config() -> Callable[[str], bytes]:
    """The BMv2 JSON of a program in programs/, compiled once."""
    known: dict[str, bytes] = {}

    def compiled(name: str) -> bytes:
        if name not in known:
            known[name] = compile_file(PROGRAMS / f"{name}.p4").json_text().encode()
        return known[name]

    return compiled


@pytest.fixture
def engine(config: Callable[[str], bytes]) -> Callable[[str], Engine]:
    """A fresh switch with a program of programs/."""
    return lambda name: Engine.load(config(name), cpu_port=CPU_PORT)


@pytest.fixture
def links() -> Iterator[Any]:
    opened: list[CLink] = []

    def link(properties: LinkProperties, stream: int = 0) -> CLink:
        opened.append(CLink(properties, stream))
        return opened[-1]

    yield link
    for one in opened:
        one.close()
