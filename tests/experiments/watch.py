"""An observer that remembers."""

from __future__ import annotations

from fanin.experiments.live.worker_group import Observe
from fanin.experiments.results.measured import Row
from fanin.experiments.scenario.settings import Settings


class Watch:
    """Notes what it is told; after `patience` new rows comes Ctrl-C."""

    def __init__(self, patience: int | None = None) -> None:
        self.there = 0
        self.rows: list[Row] = []
        self._patience = patience

    def found(self, count: int) -> None:
        self.there = count

    def begun(self, _settings: Settings) -> Observe:
        return lambda _step, _awaited: None

    def finished(self, row: Row) -> None:
        self.rows.append(row)
        if len(self.rows) == self._patience:
            raise KeyboardInterrupt
