"""Environment in which the C that a process compiles runs under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

# -Og and -g1 compile twice as fast as -O1 and -g, and most of the time goes to compiling.
# The sanitizers' stack frames are several times as large as the usual limit.
FLAGS = "-Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined -Wno-frame-larger-than"


def sanitized_environment(cache: Path) -> dict[str, str] | None:
    """Return the environment of such a process, with its libraries in `cache`; None without sanitizers."""
    libraries = [compiler_library("libasan.so"), compiler_library("libubsan.so")]
    if None in libraries:
        return None
    return {
        **os.environ,
        "P4SWITCH_CFLAGS": FLAGS,
        "LD_PRELOAD": " ".join(map(str, libraries)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks
        "XDG_CACHE_HOME": str(cache),
    }


def compiler_library(name: str) -> Path | None:
    """Return the path of one of the compiler's libraries."""
    command = [os.environ.get("CC", "cc"), f"-print-file-name={name}"]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    return found if found.is_absolute() and found.exists() else None
