"""All values that theory derives, each with that of virtual time."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.assurance.validation.theory.dcqcn import dcqcn
from fanin.assurance.validation.theory.dctcp import dctcp
from fanin.assurance.validation.theory.derived import Derived
from fanin.assurance.validation.theory.paths import paths
from fanin.assurance.validation.theory.pauses import pauses
from fanin.p4switch.engine.engine import Engine


def values(switch: Engine) -> Iterator[Derived]:
    """Yield all values in virtual time, on switches with the program of `switch`.

    Raises:
        UnfinishedError: Flows did not end when they should.
    """
    yield from dcqcn(switch)
    yield from dctcp(switch)
    yield from pauses(switch)
    yield from paths(switch)
