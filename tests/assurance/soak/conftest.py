"""Programs with defects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4switch.engine.engine import Engine
from tests.assurance.soak.program_mutants import load_mutant


@pytest.fixture
def mutant(pytestconfig: pytest.Config) -> Callable[[str], Engine]:
    """The program with the defect of this name."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir("mutants")
    return lambda name: load_mutant(name, folder)
