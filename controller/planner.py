"""What decides what switches are told: our plans, or another's in their place."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from controller import plan, tree
from controller.network import Network

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
