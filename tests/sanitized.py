"""Processes of their own in which our C runs under the compiler's sanitizers."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fanin.assurance.fuzz.sanitizers import compiler_library, sanitized_environment
from fanin.native.cache import cache_directory


def last_line_of_sanitized(command: Sequence[str | Path]) -> str:
    """Return the command's last line under AddressSanitizer and UndefinedBehaviorSanitizer.

    A finding fails the test; without the sanitizers it is skipped.
    """
    environment = sanitized_environment(cache_directory().parent)
    if environment is None:
        pytest.skip("the compiler comes without libasan and libubsan")
    return _last_line(command, environment)


def last_line_of_threads(command: Sequence[str | Path]) -> str:
    """Return the command's last line under ThreadSanitizer; see last_line_of_sanitized()."""
    library = compiler_library("libtsan.so")
    fixed = ["setarch", "-R"]  # without random addresses, among which it does not always find room
    if library is None or subprocess.run([*fixed, "true"], capture_output=True, check=False).returncode:
        pytest.skip("the compiler comes without libtsan, or addresses cannot be fixed here")
    environment = {
        **os.environ,
        "P4SWITCH_CFLAGS": "-Og -g1 -fsanitize=thread -Wno-frame-larger-than",
        "LD_PRELOAD": os.fspath(library),
        "XDG_CACHE_HOME": os.fspath(cache_directory().parent),
    }
    return _last_line([*fixed, *command], environment)


def _last_line(command: Sequence[str | Path], environment: dict[str, str]) -> str:
    environment["PYTHONPATH"] = os.fspath(Path(__file__).parents[1])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout.splitlines()[-1]
