"""A worker's recording of each all-reduce, its input, result and times, in files that other processes can map."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of one worker.

    Attributes:
        inputs: float32 [steps, elements].
        outputs: float32 [steps, elements].
        starts: Seconds [steps].
        ends: Seconds [steps].
    """

    inputs: Vector
    outputs: Vector
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @classmethod
    def create(cls, folder: Path, rank: int, steps: int, elements: int) -> Recording:
        """Create the files of worker `rank`, to be filled by `wrap`."""
        recording = cls._open(folder, rank, "w+", steps, elements)
        recording.outputs.fill(0.0)  # allocates its pages before the all-reduces begin
        return recording

    @classmethod
    def open(cls, folder: Path, rank: int) -> Recording:
        """Map the files of worker `rank` for reading."""
        return cls._open(folder, rank, "r")

    @classmethod
    def _open(cls, folder: Path, rank: int, mode: str, steps: int = 0, elements: int = 0) -> Recording:
        def array(name: str, dtype: type, *shape: int) -> NDArray[Any]:
            path = folder / f"{name}-{rank}.npy"
            if mode == "r":
                return np.lib.format.open_memmap(path, mode="r")
            return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)

        return cls(
            array("inputs", np.float32, steps, elements),
            array("outputs", np.float32, steps, elements),
            array("starts", np.float64, steps),
            array("ends", np.float64, steps),
        )

    def wrap(
        self, all_reduce: Callable[[Vector], Vector], adds: Callable[[Vector], Vector] | None = None
    ) -> Callable[[Vector], Vector]:
        """Wrap `all_reduce`, which takes a vector [elements], so that each call is recorded as the next step.

        Args:
            all_reduce: The function to wrap.
            adds: Returns what is really added up for a vector, if that differs.
        """
        step = 0

        def recorded(vector: Vector) -> Vector:
            nonlocal step
            self.inputs[step] = vector if adds is None else adds(vector)
            self.starts[step] = time.monotonic()
            result = all_reduce(vector)
            self.ends[step] = time.monotonic()
            self.outputs[step] = result
            step += 1
            return result

        return recorded
