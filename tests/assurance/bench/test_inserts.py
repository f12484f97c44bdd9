"""The benchmark of inserts inserts, and compares with reading the same messages."""

import pytest

from fanin.assurance.bench.switch.inserts import insert_outcome
from fanin.assurance.bench.switch.tables import Routes


@pytest.mark.parametrize("kind", ["lpm", "exact", "ternary"])
def test_entries_of_every_kind_are_inserted_and_read(kind: str) -> None:
    """That an insert is refused would be an error of the benchmark itself."""
    outcome = insert_outcome(Routes(kind, 1500))
    assert outcome.seconds > 0
    assert outcome.baseline > 0
    assert outcome.ratio == outcome.seconds / outcome.baseline
