"""The command as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fanin.network import RUN, Up
from topologies.live.patience import setting

Fanin = Callable[..., "subprocess.CompletedProcess[str]"]


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


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a script; its path."""

    def write(text: str) -> Path:
        path = tmp_path / "script.py"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A network that is up, one for all tests that leave it as it was."""
    with Up(tmp_path_factory.mktemp("up")) as network:
        yield network
