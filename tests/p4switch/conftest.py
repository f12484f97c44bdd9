"""Engines for small P4 programs, compiled by p4compiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from p4compiler import compile_file
from p4switch.engine.engine import Engine

PROGRAMS = Path(__file__).parent / "programs"
CPU_PORT = 255


@pytest.fixture(scope="session")
def config() -> Callable[[str], bytes]:
    """The BMv2 JSON of a program in programs/, compiled once."""
    known: dict[str, bytes] = {}

    def compiled(name: str) -> bytes:
        if name not in known:
            known[name] = compile_file(PROGRAMS / f"{name}.p4").device_config()
        return known[name]

    return compiled


@pytest.fixture
def engine(config: Callable[[str], bytes]) -> Callable[[str], Engine]:
    """A fresh switch with a program of programs/."""
    return lambda name: Engine.load(config(name), cpu_port=CPU_PORT)
