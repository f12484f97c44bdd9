"""How a process is started so that the C compiled in it runs under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# -Og and -g1: half the time to compile of -O1 and -g, which is nearly all the time that is spent.
# The sanitizers' frames are several times as large as what is limited.
FLAGS = "-Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-frame-larger-than"


def sanitized_environment(cache: Path) -> dict[str, str] | None:
    """The environment of such a process, whose libraries are kept in `cache`; None: the compiler has no sanitizers."""
    libraries = [_library("libasan.so"), _library("libubsan.so")]
    if None in libraries:
        return None
    return {
        **os.environ,
        "P4SWITCH_CFLAGS": FLAGS,
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks
        "XDG_CACHE_HOME": str(cache),
    }


def _library(name: str) -> Path | None:
    """Where the compiler has a library."""
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    return found if found.is_absolute() and found.exists() else None
