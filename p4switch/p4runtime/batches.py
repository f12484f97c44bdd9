"""The updates of a Write request: each on its own, or all of them or none."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import chain

import grpc

from fanin.p4switch.entries import TableError
from fanin.p4switch.p4runtime.entities.registry import Entities
from fanin.p4switch.p4runtime.errors import P4RuntimeError, denied
from fanin.p4switch.p4runtime.proto import p4r
from fanin.p4switch.p4runtime.roles import RoleAccess

_log = logging.getLogger(__name__)


def attempt(entities: Entities, update: p4r.Update, access: RoleAccess) -> P4RuntimeError | None:
    """Carry out an update. Return the error if it fails, else None."""
    try:
        if not entities.allows(access, update.entity):
            return denied(
                f"the role {access.name!r} may not write this entity: its config does not have the id, or "
                "@p4runtime_role gives it to another role"
            )
        entities.write(update)
    except P4RuntimeError as error:
        return error
    except TableError as error:
        return P4RuntimeError.of(error)
    return None


def all_or_none(
    entities: Entities, updates: Sequence[p4r.Update], access: RoleAccess
) -> list[P4RuntimeError | None]:
    """Carry out all updates, or restore the state before. Then all updates except the failed one are ABORTED."""
    undo: list[list[p4r.Update]] = []
    for number, update in enumerate(updates):
        before = entities.undoing(update)
        error = attempt(entities, update, access)
        if error is None:
            undo.append(before)
            continue
        for step in chain.from_iterable(reversed(undo)):
            try:
                entities.restore(step)
            except (P4RuntimeError, TableError) as failed:
                _log.error("an update could not be undone: %s", failed)
        aborted = P4RuntimeError(
            grpc.StatusCode.ABORTED, f"update {number} of the batch failed: none was carried out"
        )
        return [error if n == number else aborted for n in range(len(updates))]
    return [None] * len(updates)
