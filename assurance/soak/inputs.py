"""Input vectors of a job: all magnitudes and both signs, and special values of float32."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fanin.assurance.soak.scenario import Work
from fanin.simulator.hosts.stations import Vector

_SUBNORMAL, _BELOW_TOO_LARGE, _LARGEST = (
    2.0**-140,
    np.nextafter(np.float32(2**127), np.float32(0)),
    np.finfo(np.float32).max,
)
# Special values for all of a block, and for one of its values.
_WHOLE = (0.0, -0.0, _SUBNORMAL)
_ONE = (np.nan, np.inf, -np.inf, _LARGEST, -_LARGEST, _BELOW_TOO_LARGE, 0.0, -0.0, 2.0**-126, -(2.0**-149))


def make_inputs(seed: int, job: int, work: Work) -> list[list[Vector]]:
    """Return the inputs, [all-reduces][workers]."""
    draw = np.random.Generator(np.random.PCG64([seed, 2, job]))
    # Exponents differ between workers and, a little more in each step, between blocks.
    scales = np.exp2(draw.integers(-20, 20, (work.workers, 1))).astype(np.float32)
    signs = int(draw.integers(3))
    inputs = []
    for elements in work.elements:
        values = draw.random((work.workers, elements), np.float32) * np.float32(2) - np.float32(1)
        drift = np.exp2(draw.integers(-6, 5, -(-elements // work.values))).astype(np.float32)
        values *= scales * drift.repeat(work.values)[:elements]
        if work.overflow:
            _let_overflow(draw, values, work, signs)
        elif work.special:
            _sprinkle(draw, values, work)
        inputs.append(list(values))
    return inputs


def _let_overflow(draw: np.random.Generator, values: NDArray[np.float32], work: Work, signs: int) -> None:
    """Scale values to the maximum, mostly with one sign at each position. Some workers have zeros."""
    values[:] = np.abs(values) / np.abs(values).max(axis=1, keepdims=True)
    if signs:
        values *= draw.choice(np.array([-1, 1], np.float32), values.shape[1] if signs == 1 else values.shape)
    for row in values:
        for block in _blocks(row, work.values):
            if draw.random() < 0.3:
                block[:] = 0


def _sprinkle(draw: np.random.Generator, values: NDArray[np.float32], work: Work) -> None:
    for row in values:
        for block in _blocks(row, work.values):
            kind = draw.random()
            if kind < 0.1:
                block[:] = draw.choice(_WHOLE)
            elif kind < 0.15:
                block[draw.integers(len(block))] = _ONE[draw.integers(len(_ONE))]


def _blocks(row: NDArray[np.float32], values: int) -> list[NDArray[np.float32]]:
    return np.split(row, range(values, len(row), values))
