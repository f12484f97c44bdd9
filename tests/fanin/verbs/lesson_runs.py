"""Runs of lessons in this process: to begin one of its own takes longer than most points in a small size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.experiments import sweep
from fanin.experiments.results.files import read_rows
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings


@contextmanager
def _in_this_process(
    _jobs: int, _shares: Mapping[str, int]
) -> Iterator[Callable[[Settings, bytes], Future[Row]]]:
    def submit(point: Settings, config: bytes) -> Future[Row]:
        future: Future[Row] = Future()
        future.set_result(sweep.run_point(point, config))
        return future

    yield submit


def run_lesson(
    name: str, words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, list[Row]]:
    """Run a lesson in a folder and return its output and its rows."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sweep, "_processes", _in_this_process)
    done = CliRunner().invoke(app, ["lesson", "run", name, *words])
    assert done.exit_code == 0, done.output
    return done.output, read_rows(folder / "results" / f"lesson-{name}")
