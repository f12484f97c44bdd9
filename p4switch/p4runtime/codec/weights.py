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
    """The weights in the data plane.

    The profile says whether members or their weights are counted, unless `by_members`
    does, and whether there may be weights at all; without them all weigh the same.

    Raises:
        P4RuntimeError: INVALID_ARGUMENT unless their sum, or number, is at most `max_size` (0: any).
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
