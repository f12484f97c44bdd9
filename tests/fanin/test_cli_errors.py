"""Exit statuses, alike for all verbs: 1 for what fails, 2 for what is asked wrongly, 130 after Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from fanin.cli_errors import failing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("no"), 1), (KeyError("no"), 2), (KeyboardInterrupt(), 130)]
)
def test_statuses(error: BaseException, status: int) -> None:
    with (
        pytest.raises(typer.Exit) as ended,
        failing("verb", ValueError, KeyboardInterrupt),
        failing("verb", KeyError, KeyboardInterrupt, status=2),
    ):
        raise error
    assert ended.value.exit_code == status


@pytest.mark.parametrize(
    "arguments",
    [
        ("exec", "h1", "true"),
        ("link", "leaf1"),
        ("trace", "--on", "leaf1"),
        ("tables", "leaf1"),
        ("counters", "leaf1"),
        ("packet", "leaf1", "--hex", "00"),
        ("allreduce",),
        ("shell", "leaf1"),
    ],
)
def test_without_a_network_all_verbs_say_and_end_alike(
    fanin: Any, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = fanin(*arguments, TMPDIR=str(tmp_path))
    said = f"fanin {arguments[0]}: no network is up; start one in another terminal: fanin up"
    # Other tests may have started switches by hand, which some of these commands then name.
    assert (done.returncode, done.stderr.rstrip().partition("; switches started by hand")[0]) == (1, said)
