"""All published figures, each with ours."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.assurance.validation.papers.aggregation import aggregation
from fanin.assurance.validation.papers.loss_recovery import loss_recovery
from fanin.assurance.validation.papers.published import PaperComparison
from fanin.assurance.validation.papers.without_pauses import without_pauses
from fanin.p4switch.engine.engine import Engine


def figures(switch: Engine) -> Iterator[PaperComparison]:
    """Yield all figures in virtual time, on switches with the program of `switch`.

    Raises:
        CollectiveError: A run failed.
        UnfinishedError: A run did not finish.
        DeadlockError: A run has a deadlock.
        ControllerError: A run could not begin.
    """
    yield from aggregation(switch)
    yield from loss_recovery(switch)
    yield from without_pauses(switch)
