"""What decides what switches are told: our plans, or another's in their place."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeAlias

from fanin.controller import plan, tree
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.controller.python_file import Function, PythonFileError, functions

PlanForwarding: TypeAlias = Callable[[Network], plan.Plan]
PlanAggregation: TypeAlias = Callable[[Network, tree.Tree], plan.Plan]
PlanLoss: TypeAlias = Callable[[Network, float, int], plan.Plan]
AggregationTree: TypeAlias = Callable[[Network, tree.Job], tree.Tree]


@dataclass(frozen=True, slots=True)
class Planner:
    """Functions without side effects, called alike for live switches and in virtual time.

    plan_forwarding: what every switch is told before any job. aggregation_tree: which switches add up for a job, and
    where their sums go. plan_aggregation: what these are told of it, taken back when it ends. plan_loss: what makes
    links lose packets, live.
    """

    plan_forwarding: PlanForwarding = plan.plan_forwarding
    aggregation_tree: AggregationTree = tree.aggregation_tree
    plan_aggregation: PlanAggregation = plan.plan_aggregation
    plan_loss: PlanLoss = plan.plan_loss


OURS = Planner()


@cache
def planner_of(controller: Path | None, paths: plan.PathChoice = "ecmp") -> Planner:
    """What a controller file defines, ours for the rest; what goes wrong in it comes as ControllerError.

    paths: which of several our forwarding takes.

    Raises:
        PythonFileError: it cannot be loaded, or defines nothing that is called.
    """
    if controller is None:
        return replace(OURS, plan_forwarding=partial(plan.plan_forwarding, paths=paths))
    names = tuple(one.name for one in fields(Planner))
    return Planner(
        **{name: _of_controller(function) for name, function in functions(controller, names).items()}
    )


def _of_controller(function: Function) -> Function:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except PythonFileError as error:
            raise ControllerError(str(error)) from error

    return call
