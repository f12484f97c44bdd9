"""The command as a user types it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fanin import command
from tests.fanin.network import Up

Fanin = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def fanin() -> Fanin:
    """`fanin(*arguments, NAME=value)`: runs the command with these arguments and environment variables."""

    def run(*arguments: str, **environment: Any) -> subprocess.CompletedProcess[str]:
        return command.run(*arguments, environment={"COLUMNS": "200", "NO_COLOR": "1", **environment})

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
