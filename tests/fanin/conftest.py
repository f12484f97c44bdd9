"""The command as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from topologies.patience import setting

Fanin = Callable[..., "subprocess.CompletedProcess[str]"]

RUN = "import sys; from fanin.cli import main; sys.argv[0] = 'fanin'; main()"


@pytest.fixture(scope="session")
def fanin() -> Fanin:
    """`fanin(*arguments, NAME=value)`: runs the command with these arguments and environment variables."""

    def run(*arguments: str, **environment: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", RUN, *arguments],
            capture_output=True,
            text=True,
            timeout=600 * setting(),
            env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment},
            check=False,
        )

    return run
