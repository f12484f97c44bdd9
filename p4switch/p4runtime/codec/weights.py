"""The weights of an action profile's groups and action sets (P4Runtime specification, "ActionProfile")."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid
from fanin.p4switch.p4runtime.proto import p4i

_HEAVIEST = 1 << 16


def check_weights(
    profile: p4i.ActionProfile,
    weights: Sequence[int],
    max_size: int,
    what: str,
    *,
    by_members: bool | None = None,
) -> Sequence[int]:
    """Check the weights of a group and return those for the data plane.

    Args:
        profile: The action profile. It determines whether the size of a group is its number of members or the sum of
            their weights, and whether weights are allowed. Without them all members have weight 1.
        weights: The weights as given.
        max_size: The largest size; 0 means unlimited.
        what: The name of the group in errors.
        by_members: Overrides the profile's kind of size.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT if the group is too large, or a weight is not allowed.
    """
    if profile.weights_disallowed:
        if any(weights):
            raise invalid(f"{what}: the profile {profile.preamble.name} has no weights: leave them unset")
        weights = [1] * len(weights)
    if by_members is None:
        by_members = profile.WhichOneof("selector_size_semantics") == "sum_of_members"
    heaviest = profile.sum_of_members.max_member_weight if by_members else 0
    for weight in weights:
        if weight <= 0 or (heaviest and weight > heaviest):
            raise invalid(f"{what}: the weight {weight} is not in 1..{heaviest or _HEAVIEST}")
        if weight > _HEAVIEST:
            raise P4RuntimeError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{what}: weights are at most {_HEAVIEST} here, not {weight}",
            )
    size = len(weights) if by_members else sum(weights)
    if max_size and size > max_size:
        counted = "members" if by_members else "weights"
        raise invalid(f"{what}: {counted} of {size} in all are above its size, {max_size}")
    return weights
