"""What one worker put into each all-reduce, what it got back, and when: files that the other processes can map."""

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
    """Arrays of one worker: inputs and outputs float32 [steps, elements], starts and ends in seconds [steps]."""

    inputs: Vector
    outputs: Vector
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]

    @classmethod
    def create(cls, folder: Path, rank: int, steps: int, elements: int) -> Recording:
        """Make the files of worker `rank`, to be filled by `wrap`."""
        recording = cls._open(folder, rank, "w+", steps, elements)
        recording.outputs.fill(0.0)  # its pages are there when the all-reduces begin
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
        """`all_reduce` of a vector [elements], each call of it recorded as the next step.

        adds: what it adds up in the place of a vector; None: the vector.
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
