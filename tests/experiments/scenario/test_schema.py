"""The schema of scenarios for editors: where a key may have several values, a list of them is correct."""

from __future__ import annotations

from typing import Any

import pytest

from fanin.experiments.scenario.schema import scenario_schema
from fanin.experiments.scenario.settings import KEYS, KeyPath

SCHEMA = scenario_schema()


def described(path: KeyPath) -> Any:
    """The schema of a key."""
    table: Any = SCHEMA
    for name in path[:-1]:
        (reference,) = {
            word for word in str(table["properties"][name]).split("'") if word.startswith("#/$defs/")
        }
        table = SCHEMA["$defs"][reference.removeprefix("#/$defs/")]
    return table["properties"][path[-1]]


@pytest.mark.parametrize("path", KEYS.values(), ids=".".join)
def test_a_key_takes_a_value_or_a_list_of_them(path: KeyPath) -> None:
    choices = described(path)["anyOf"]
    lists = [choice for choice in choices if choice.get("type") == "array"]
    assert lists
    assert all(choice["minItems"] == 1 for choice in lists)
    assert len(lists) < len(choices)
    assert {"type": "null"} not in choices


def test_every_table_and_key_has_a_description() -> None:
    tables = {"": SCHEMA} | SCHEMA["$defs"]
    assert not [name for name, table in tables.items() if not table.get("description")]
    assert not [
        f"{name}.{key}"
        for name, table in tables.items()
        for key, value in table["properties"].items()
        if not value.get("description")
    ]


def test_the_description_of_a_table_ends_before_those_of_its_keys() -> None:
    assert not [name for name, table in SCHEMA["$defs"].items() if "Attributes:" in table["description"]]
    burst = SCHEMA["$defs"]["Burst"]
    assert burst["properties"]["end"]["description"] == "The probability that a burst ends with a packet."


def test_a_key_of_single_links_is_described_as_that_of_all_links() -> None:
    tables = SCHEMA["$defs"]
    described = tables["LinkModel"]["properties"]["jitter"]["description"]
    assert tables["LinkProperties"]["properties"]["jitter"]["description"] == described
    assert tables["Override"]["properties"]["jitter"]["description"] == described
