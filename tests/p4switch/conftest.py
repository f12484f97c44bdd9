"""Engines for small P4 programs, compiled by p4compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine

PROGRAMS = Path(__file__).parent / "programs"
CPU_PORT = 255


@pytest.fixture(autouse=True, scope="module")
def quickly_compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hundreds of programs take less than half as long to compile; those in stf/ are compiled as for users."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name != "stf" and "P4SWITCH_CFLAGS" not in os.environ:
            patch.setenv("P4SWITCH_CFLAGS", "-Og")
        yield


@pytest.fixture(scope="session")
def config() -> Callable[[str], bytes]:
    """The BMv2 JSON of a program in programs/, compiled once."""
    known: dict[str, bytes] = {}

    def compiled(name: str) -> bytes:
        if name not in known:
            known[name] = compile_once(PROGRAMS / f"{name}.p4").device_config()
        return known[name]

    return compiled


@pytest.fixture
def engine(config: Callable[[str], bytes]) -> Callable[[str], Engine]:
    """A fresh switch with a program of programs/."""
    return lambda name: Engine.load(config(name), cpu_port=CPU_PORT)
