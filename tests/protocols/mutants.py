"""Protocols with a mistake that soak has to find, and links on which it shows."""

from __future__ import annotations

import os
import re
from pathlib import Path
from zlib import crc32

import pytest

from fanin.experiments.protocol import Protocol, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch
from fanin.topologies.link import LinkProperties

FAULTY = LinkProperties(delay=2e-6, loss=0.03, duplication=0.05, reordering=0.05, displacement=1e-4)


def _replaced(source: str, text: str, mutated: str) -> str:
    assert source.count(text) == 1, text
    return source.replace(text, mutated)


def _source(program: Path) -> str:
    """Return a program, with the program of another protocol that it includes."""
    return re.sub(
        r'#include "(\.\./\w+/program\.p4)"',
        lambda included: (program.parent / included[1]).read_text(),
        program.read_text(),
    )


def switch_with(protocol: Protocol, text: str, mutated: str, cache: pytest.Cache) -> Engine:
    """Return a switch with the protocol's program, in which `text` is replaced.

    It is in the same folder each time, so that it is found compiled.
    """
    changed = _replaced(_source(protocol.program), text, mutated)
    included = str(protocol.program.parents[2] / "p4src")
    folder = cache.mkdir(f"{protocol.name}-{crc32((text + mutated).encode()):08x}")
    writing = folder / str(os.getpid())  # whole, whenever another process compiles it
    writing.write_text(changed.replace("../../p4src", included))
    writing.replace(folder / "program.p4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("P4SWITCH_CFLAGS", "-Og")  # half the time to compile
        return load_switch(folder / "program.p4")


def protocol_with(protocol: Protocol, text: str, mutated: str, folder: Path) -> Protocol:
    """Return the protocol with `text` replaced in its Python file."""
    for name in ("program.p4", "README.md"):
        (folder / name).write_text("")
    (folder / "protocol.py").write_text(_replaced(protocol.file.read_text(), text, mutated))
    return protocol_of(str(folder))
