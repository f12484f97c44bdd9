"""What the terminal shows while a command works."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from experiments.live import RunSpec

console = Console()


class ProgressObserver:
    """A line for each stage and a bar for each run, as long as it is entered."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def stage(self, text: str) -> None:
        """Something that takes a moment has begun."""
        self._progress.console.print(f"[dim]{text} …[/]")

    def run(self, spec: RunSpec, steps: int) -> Callable[[int], None]:
        """A run of `steps` all-reduces has begun."""
        loss = f", {spec.loss:.0%} loss" if spec.loss else ""
        task = self._progress.add_task(f"{spec.name}, {spec.algorithm}{loss}", total=steps)
        return lambda step: self._progress.update(task, completed=step)
