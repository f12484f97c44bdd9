"""The benchmark of inserts inserts, and compares with reading the same messages."""

import pytest

from fanin.assurance.bench.switch.inserts import insert_outcome
from fanin.assurance.bench.switch.tables import Routes


@pytest.mark.parametrize("kind", ["lpm", "exact", "ternary"])
def test_an_insert_takes_longer_than_reading_its_message(kind: str) -> None:
    outcome = insert_outcome(Routes(kind, 1500))
    assert outcome.ratio > 1
