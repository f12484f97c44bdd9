"""Progress bars of commands: on standard error, and only if it is a terminal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from fanin.console import messages
from fanin.experiments.live.worker_group import Observe
from fanin.experiments.results.measured import Row
from fanin.experiments.results.summary import label, work_name
from fanin.experiments.scenario.settings import Settings


def _observe(progress: Progress, task: TaskID, step: int, awaited: str) -> None:
    progress.update(task, completed=step, awaited=awaited and f"waiting for {awaited}")


class _Bars:
    """A context in which progress bars are shown.

    Args:
        shown: Show them if standard error is a terminal.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[awaited]}", markup=False),
            console=messages,
            transient=True,
            disable=not (shown and messages.is_terminal),
            redirect_stdout=False,  # a pipe gets what is printed meanwhile; not the terminal
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()


class Steps(_Bars):
    """Progress of equal steps.

    Args:
        name: The name of the steps, such as "scenarios".
        total: Their number, or None if it is unknown.
        shown: Show it if standard error is a terminal.
    """

    def __init__(self, name: str, total: float | None, *, shown: bool = True) -> None:
        super().__init__(shown=shown)
        self._task = self._progress.add_task(name, total=total, awaited="")

    def begin(self, note: str) -> None:
        """Show which step has begun."""
        self._progress.update(self._task, awaited=note)

    def advance(self, steps: float = 1, note: str = "") -> None:
        """Show that steps have finished."""
        self._progress.update(self._task, advance=steps, awaited=note)


class ProgressObserver(_Bars):
    """Progress with a line for each stage and a bar for each run."""

    def __init__(self, *, shown: bool = True) -> None:
        super().__init__(shown=shown)
        self._start: TaskID | None = None

    def stage(self, text: str) -> None:
        """Show that a stage has begun."""
        if self._start is not None:
            self._progress.remove_task(self._start)
        self._start = self._progress.add_task(text, total=None, awaited="")

    def awaits(self, who: str) -> None:
        """Show that the start is waiting for `who`, until a run begins."""
        if self._start is None:
            self._start = self._progress.add_task("", total=None, awaited="")
        _observe(self._progress, self._start, 0, who)

    def run(self, settings: Settings, steps: int) -> Observe:
        """Show that a run of `steps` all-reduces has begun, and return its observer."""
        if self._start is not None:
            self._progress.remove_task(self._start)
            self._start = None
        title = f"{work_name(settings)}, {label(settings)}"
        return partial(_observe, self._progress, self._progress.add_task(title, total=steps, awaited=""))


class PointsProgress(_Bars):
    """Progress with a bar for the points of a scenario, and one for the live point that is running."""

    def __init__(self, name: str, points: int, note: Callable[[str], None], *, shown: bool = True) -> None:
        super().__init__(shown=shown)
        self._note = note
        self._failed = 0
        self._total = points
        self._points = self._progress.add_task(name, total=points, awaited="")
        self._live: TaskID | None = None

    def found(self, count: int) -> None:
        """Show how many points have earlier results."""
        if count:
            self._note(f"{count} of {self._total} points are already done")
            self._progress.update(self._points, completed=count)

    def begun(self, settings: Settings) -> Observe:
        """Show that a live point has begun, and return its observer."""
        total = None if settings.training else settings.repetitions
        task = self._live = self._progress.add_task(settings.algorithm, total=total, awaited="")
        return partial(_observe, self._progress, task)

    def finished(self, row: Row) -> None:
        """Show that a point has finished with this row."""
        self._failed += row["error"] is not None
        note = f"{self._failed} failed" if self._failed else ""
        self._progress.update(self._points, advance=1, awaited=note)
        if self._live is not None:
            self._progress.remove_task(self._live)
            self._live = None
