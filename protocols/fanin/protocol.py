"""fanin's own protocol: block floating point sums, slots with chunk numbers, RFC 6298 timers; README.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fanin.controller.requirements import PROGRAM
from fanin.experiments.protocol import FAULTS
from fanin.workers import wire
from fanin.workers.protocol import Worker


def program() -> Path:
    """Return the P4 program."""
    return PROGRAM


participant, packet = Worker, wire.full_packet


def error_bound(inputs: Sequence[NDArray[np.float32]], values: int, window: int) -> NDArray[np.float64]:
    """Return the largest distance from the exact sum, [elements]."""
    from fanin.experiments.results.checking import quantized_sum_bound

    return quantized_sum_bound(inputs, values, window)


def inputs(seed: int, job: int, work: Any) -> list[list[NDArray[np.float32]]]:
    """Draw the inputs of a job of soak: all magnitudes, saturation and special values, [all-reduces][workers]."""
    from fanin.assurance.soak.inputs import make_inputs

    return make_inputs(seed, job, work)


def sums(values: int, window: int, workers: int) -> Any:
    """Return the oracle of soak: the integers that switches add, bit for bit where they are certain."""
    from fanin.experiments.models.expected_sums import QuantizedSums

    return QuantizedSums(values, window, workers)


def survives() -> Iterable[str]:
    """Return the faults that soak may cause: all."""
    return FAULTS


def invariants(run: Any) -> Iterable[str]:
    """Yield what is wrong: chunks added more than once, lost or made up, and drops that no fault explains."""
    from fanin.assurance.soak.aggregation import problems

    return problems(run)
