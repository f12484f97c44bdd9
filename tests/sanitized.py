"""Processes of their own in which our C runs under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from fanin.assurance.fuzz.sanitizers import sanitized_environment
from fanin.native.cache import cache_directory


def last_line_of_sanitized(command: Sequence[str | Path]) -> str:
    """Return the command's last line; a finding fails the test, and without the sanitizers it is skipped."""
    environment = sanitized_environment(cache_directory().parent)
    if environment is None:
        pytest.skip("the compiler comes without libasan and libubsan")
    environment["PYTHONPATH"] = os.fspath(Path(__file__).parents[1])
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout.splitlines()[-1]
