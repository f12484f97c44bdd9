"""The externs that actions can call, by name."""

from __future__ import annotations

from pathlib import Path

from fanin.p4compiler.externs import (
    OUTSIDE,
    assertions,
    counters,
    drop,
    hashes,
    log_msg,
    meters,
    random_numbers,
    registers,
    requests,
)
from fanin.p4compiler.externs.extern_kind import ExternKind

_MODULES = (registers, counters, meters, drop, requests, log_msg, assertions, random_numbers, hashes)
EXTERNS: dict[str, ExternKind] = {extern.name: extern for module in _MODULES for extern in module.EXTERNS}


def register(extern: ExternKind) -> None:
    """Add an extern to those that actions can call.

    Raises:
        ValueError: If there is one of that name.
    """
    if extern.name in EXTERNS:
        raise ValueError(f"there is an extern {extern.name} already")
    EXTERNS[extern.name] = extern
    OUTSIDE.add(Path(extern.emit.__code__.co_filename))
