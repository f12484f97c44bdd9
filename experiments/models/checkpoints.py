"""The analytical model of a training that fails at random and continues from its last checkpoint."""

from __future__ import annotations

from math import exp, expm1, sqrt


def lost_share(interval: float, pause: float, unsaved: float, restart: float, mtbf: float) -> float:
    """Return the expected share of the time that checkpoints, restarts, and steps that failures undo take.

    With `unsaved` = 0, the rest is the reciprocal of the relative wall-clock time in the complete model of Daly (2006).
    It is in "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
    Systems 22. Failures during a restart count. A checkpoint that is written while training continues protects nothing
    until it is complete, so a failure also undoes that time, as a longer restart would.

    Args:
        interval: Seconds of computing between two checkpoints.
        pause: Seconds for which a checkpoint stops the training.
        unsaved: Seconds from the end of that pause until the checkpoint can be used.
        restart: Seconds from a failure until the training continues.
        mtbf: Mean seconds between failures.
    """
    return 1 - interval / (mtbf * exp((restart + unsaved) / mtbf) * expm1((interval + pause) / mtbf))


def best_interval(pause: float, mtbf: float) -> float:
    """Return the interval in seconds that Daly's higher-order estimate gives; Young's is its first term.

    Young, "A first order approximation to the optimum checkpoint interval", CACM 17, 1974: sqrt(2 pause mtbf).

    Args:
        pause: Seconds for which a checkpoint stops the training.
        mtbf: Mean seconds between failures.
    """
    if pause >= 2 * mtbf:
        return mtbf
    ratio = pause / (2 * mtbf)
    return sqrt(2 * pause * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - pause
