"""All published figures, each with ours."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.validation.papers.aggregation import aggregation
from experiments.validation.papers.loss_recovery import loss_recovery
from experiments.validation.papers.published import Beside
from experiments.validation.papers.without_pauses import without_pauses
from p4switch.engine.engine import Engine


def figures(switch: Engine) -> Iterator[Beside]:
    """In virtual time, switches with the program of `switch`.

    Raises:
        CollectiveError, UnfinishedError, DeadlockError, ControllerError: a run did not come to its end.
    """
    yield from aggregation(switch)
    yield from loss_recovery(switch)
    yield from without_pauses(switch)
