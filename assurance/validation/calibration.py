"""Latency and bandwidth (alpha, beta) of each closed form fitted at some sizes, and what it then says of others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from fanin.experiments.models.closed_forms import between_hosts, in_network
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.native.files import write_json
from fanin.p4switch.engine.engine import Engine
from fanin.workers.collective import Algorithm

TOLERANCE = 0.1
FITTED = (256_000, 1_024_000, 4_096_000)  # bytes
HELD_OUT = (512_000, 2_048_000)
WORKERS = 8
SHAPE = {"spines": 0, "leaves": 1, "hosts_per_leaf": WORKERS, "rate": 100 * 10**9}

_TURNS, _STEP = 20, 1 + 1e-6


@dataclass(frozen=True, slots=True)
class Fit:
    """An algorithm's closed form with measured numbers: `alpha`, seconds from host to host; `beta`, seconds a byte."""

    algorithm: Algorithm
    alpha: float
    beta: float

    def seconds(self, size: int) -> float:
        """Of an all-reduce of `size` bytes."""
        return _form(self.algorithm, size, self.alpha, self.beta)

    @classmethod
    def through(cls, algorithm: Algorithm, times: Sequence[tuple[int, float]]) -> Fit:
        """Least squares of the relative errors at (bytes, seconds), two or more, so that each size counts alike.

        Forms are sums and maxima of multiples of alpha and of beta. Near a guess they are linear, and the next guess is
        the best line there; a maximum that changes sides takes another turn.
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
    return between_hosts(algorithm, WORKERS, size, lambda *_: alpha, 1 / beta)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A size in virtual time.

    seconds: measured. fit: the closed form with measured numbers. closed_form: seconds by it, without any measurement.
    """

    algorithm: Algorithm
    size: int
    fit: Fit
    seconds: float
    closed_form: float

    @property
    def held_out(self) -> bool:
        """Whether the form was fitted without it."""
        return self.size in HELD_OUT

    @property
    def fitted(self) -> float:
        """Seconds."""
        return self.fit.seconds(self.size)

    @property
    def error(self) -> float:
        """Of the fit, as a share of the time measured."""
        return self.fitted / self.seconds - 1

    @property
    def agrees(self) -> bool:
        """Within the tolerance."""
        return abs(self.error) <= TOLERANCE

    @property
    def cells(self) -> tuple[str, ...]:
        """For people, times in microseconds."""
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
    """Eight workers below one switch, with a window that fills their links."""
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
    """All sizes of each algorithm, those of the fit and those held out.

    Raises:
        CollectiveError, UnfinishedError, ControllerError: a run did not come to its end.
    """
    for algorithm in get_args(Algorithm):
        found = {}
        for size in sorted(FITTED + HELD_OUT):
            measured = run_virtual(settings(algorithm, size), switch)
            assert measured.closed_form_seconds is not None
            assert not measured.violations
            found[size] = measured.median, measured.closed_form_seconds
        fit = Fit.through(algorithm, [(size, found[size][0]) for size in FITTED])
        for size, (seconds, closed_form) in found.items():
            yield Prediction(algorithm, size, fit, seconds, closed_form)


def write(predictions: Sequence[Prediction], folder: Path) -> None:
    """closed-form.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "predictions": [{**asdict(one), "fitted": one.fitted, "error": one.error} for one in predictions]
    }
    write_json(document, folder / "closed-form.json")
