"""Latency and bandwidth (alpha, beta) of each analytical model, fitted at some sizes and checked at others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fanin.experiments.models.closed_forms import in_network
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.native.files import write_json
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Algorithm
from fanin.workers.host_based.algorithms.all_reduce import Hosts
from fanin.workers.host_based.algorithms.registry import algorithm_named, algorithm_names

TOLERANCE = 0.1
FITTED = (256_000, 1_024_000, 4_096_000)  # bytes
HELD_OUT = (512_000, 2_048_000)
WORKERS = 8
SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": WORKERS, "rate": 100 * 10**9}

_TURNS, _STEP = 20, 1 + 1e-6


@dataclass(frozen=True, slots=True)
class Fit:
    """An algorithm's analytical model with fitted parameters.

    Attributes:
        algorithm: The algorithm.
        alpha: Latency from host to host, in seconds.
        beta: Seconds per byte.
    """

    algorithm: Algorithm
    alpha: float
    beta: float

    def seconds(self, size: int) -> float:
        """Return the time of an all-reduce of `size` bytes."""
        return _form(self.algorithm, size, self.alpha, self.beta)

    @classmethod
    def through(cls, algorithm: Algorithm, times: Sequence[tuple[int, float]]) -> Fit:
        """Fit to (bytes, seconds) by least squares of the relative errors, so that each size counts alike.

        Models are sums and maxima of multiples of alpha and of beta. Near a guess they are linear, and the next guess
        is the best fit there. If a maximum changes sides, another turn is needed.
        """
        alpha, beta = 1e-6, times[-1][1] / times[-1][0]
        for _ in range(_TURNS):
            slopes = [
                (
                    (_form(algorithm, size, alpha * _STEP, beta) - _form(algorithm, size, alpha, beta))
                    / (alpha * (_STEP - 1)),
                    (_form(algorithm, size, alpha, beta * _STEP) - _form(algorithm, size, alpha, beta))
                    / (beta * (_STEP - 1)),
                )
                for size, _ in times
            ]
            relative = np.array(slopes) / np.array([[seconds] for _, seconds in times])
            alpha, beta = map(float, np.linalg.lstsq(relative, np.ones(len(times)))[0])
        return cls(algorithm, alpha, beta)


def _form(algorithm: Algorithm, size: int, alpha: float, beta: float) -> float:
    if algorithm == "in-network":
        return in_network(size, alpha, 1 / beta, window=size, ahead=0.0)
    return algorithm_named(algorithm).seconds(size, Hosts(WORKERS, lambda *_: alpha, 1 / beta))


@dataclass(frozen=True, slots=True)
class Prediction:
    """A size in virtual time.

    Attributes:
        algorithm: The algorithm.
        size: Bytes of the vector.
        fit: The fitted model.
        seconds: Measured time.
        closed_form: Time by the model without any measurement.
    """

    algorithm: Algorithm
    size: int
    fit: Fit
    seconds: float
    closed_form: float

    @property
    def held_out(self) -> bool:
        """Return whether the model was fitted without this size."""
        return self.size in HELD_OUT

    @property
    def fitted(self) -> float:
        """Return the seconds by the fitted model."""
        return self.fit.seconds(self.size)

    @property
    def error(self) -> float:
        """Return the error of the fit, as a share of the measured time."""
        return self.fitted / self.seconds - 1

    @property
    def agrees(self) -> bool:
        """Return whether the error is within the tolerance."""
        return abs(self.error) <= TOLERANCE

    @property
    def columns(self) -> dict[str, Any]:
        """Return the entry of closed-form.json."""
        return {**asdict(self), "fitted": self.fitted, "error": self.error}

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the cells of a table row, with times in microseconds."""
        return (
            self.algorithm,
            f"{self.size // 1000:,} kB",
            "held out" if self.held_out else "fitted",
            f"{self.seconds * 1e6:.1f}",
            f"{self.fitted * 1e6:.1f}",
            f"{self.error:+.1%}",
            f"{self.closed_form * 1e6:.1f}",
            f"{self.closed_form / self.seconds - 1:+.1%}",
        )


def settings(algorithm: Algorithm, size: int) -> Settings:
    """Return the settings for eight workers below one switch, with a window that fills their links."""
    return Settings.model_validate(
        {
            "topology": {"leaf_spine": SHAPE},
            "links": {"delay": 1e-6},
            "algorithm": algorithm,
            "size": f"{size} B",
            "window": 256,
        }
    )


def calibrate(switch: Engine) -> Iterator[Prediction]:
    """Yield all sizes of each algorithm, fitted and held out.

    Raises:
        CollectiveError: A run failed.
        UnfinishedError: A run did not finish.
        ControllerError: A run could not begin.
    """
    for algorithm in algorithm_names():
        found = {}
        for size in sorted(FITTED + HELD_OUT):
            measured = run_virtual(settings(algorithm, size), switch)
            assert measured.closed_form_seconds is not None
            assert measured.violations == 0
            found[size] = measured.median, measured.closed_form_seconds
        fit = Fit.through(algorithm, [(size, found[size][0]) for size in FITTED])
        for size, (seconds, closed_form) in found.items():
            yield Prediction(algorithm, size, fit, seconds, closed_form)


def write(predictions: Sequence[Prediction], folder: Path) -> None:
    """Write closed-form.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"predictions": [one.columns for one in predictions]}
    write_json(document, folder / "closed-form.json")
