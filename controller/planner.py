"""The functions that decide what switches hold: our plans, or functions of a user's file that replace them."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeAlias

from fanin.controller import plan, tree
from fanin.controller.errors import ControllerError
from fanin.controller.network import Network
from fanin.native.python_file import Function, PythonFileError, functions

PlanForwarding: TypeAlias = Callable[[Network], plan.Plan]
PlanAggregation: TypeAlias = Callable[[Network, tree.Tree], plan.Plan]
PlanLoss: TypeAlias = Callable[[Network, float, int], plan.Plan]
AggregationTree: TypeAlias = Callable[[Network, tree.Job], tree.Tree]


@dataclass(frozen=True, slots=True)
class Planner:
    """Functions without side effects, called in the same way for live switches and in virtual time.

    Attributes:
        plan_forwarding: Returns what every switch holds before any job.
        aggregation_tree: Returns which switches add up for a job, and where their sums go.
        plan_aggregation: Returns what these switches hold for the job until it ends.
        plan_loss: Returns what makes links lose packets; live networks only.
    """

    plan_forwarding: PlanForwarding = plan.plan_forwarding
    aggregation_tree: AggregationTree = tree.aggregation_tree
    plan_aggregation: PlanAggregation = plan.plan_aggregation
    plan_loss: PlanLoss = plan.plan_loss


OURS = Planner()


FUNCTIONS = tuple(one.name for one in fields(Planner))  # that a file may define


@cache
def planner_of(controller: Path | None, paths: plan.PathChoice = "ecmp") -> Planner:
    """Return a planner with the functions of a controller file, and our own for the rest.

    Errors in the file's functions are raised as ControllerError.

    Args:
        controller: The file. None: all functions are ours.
        paths: How our forwarding chooses one of several paths.

    Raises:
        PythonFileError: If the file cannot be loaded, or defines none of the functions.
    """
    ours = replace(OURS, plan_forwarding=partial(plan.plan_forwarding, paths=paths))
    if controller is None:
        return ours
    found = functions(controller, FUNCTIONS)
    return replace(ours, **{name: _of_controller(function) for name, function in found.items()})


def _of_controller(function: Function) -> Function:
    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except PythonFileError as error:
            raise ControllerError(str(error)) from error

    return call
