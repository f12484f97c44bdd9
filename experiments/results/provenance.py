"""The program and the machine, on which results depend in addition to their settings."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[3]


def machine() -> dict[str, Any]:
    """Return the properties of the machine and of libraries on which measurements depend."""
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "fanin": version("fanin"),
    }


def provenance() -> dict[str, Any]:
    """Return the properties of the program and the machine."""
    return {**machine(), "commit": commit()}


def commit() -> str | None:
    """Return the commit of this program, followed by + if files differ from it; None if unknown."""
    if not (
        _ROOT / ".git"
    ).exists():  # installed, maybe into an environment inside another project's repository
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--abbrev=12", "--dirty=+", "--exclude=*"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return described.stdout.strip() or None
