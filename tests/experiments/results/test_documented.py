"""The reference explains every column of links.parquet and workers.parquet, and every scenario key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from pydantic import BaseModel

from fanin.experiments.results.usage import FlowUse, LinkUse, QueueSample, WorkerUse
from fanin.experiments.scenario.settings import Settings, table_in
from fanin.topologies.link import ETHERNET_OVERHEAD
from fanin.workers.wire import packet_dtype

DOCS = Path(__file__).parents[3] / "docs"


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        (LinkUse, "links.parquet"),
        (WorkerUse, "workers.parquet"),
        (QueueSample, "queues.parquet"),
        (FlowUse, "flows.parquet"),
    ],
)
def test_every_column_has_a_row_with_its_unit(kind: type, file: str) -> None:
    _, _, rest = (DOCS / "reference" / "results.md").read_text().partition(f"| column of `{file}` | unit |")
    rows = [line.split("|") for line in rest.partition("\n\n")[0].splitlines()[2:]]
    documented = {name: row[2].strip() for row in rows for name in re.findall(r"`(\w+)`", row[1])}
    assert documented.keys() == {field.name for field in fields(kind)}
    assert all(documented.values())


def _keys(table: type[BaseModel]) -> Iterator[str]:
    for name, field in table.model_fields.items():
        yield name
        if (inner := table_in(field.annotation)) is not None:
            yield from _keys(inner)


def test_every_key_of_a_scenario_is_documented() -> None:
    text = "".join(
        (DOCS / page).read_text()
        for page in ("reference/scenarios.md", "reference/topologies.md", "explanation/pauses.md")
    )
    assert not [name for name in dict.fromkeys(_keys(Settings)) if not re.search(rf"\b{name}\b", text)]


def test_the_lesson_of_the_window_has_the_packet_that_is_sent() -> None:
    """At 100 Gb/s."""
    frame = 14 + 20 + 8 + packet_dtype(256).itemsize + ETHERNET_OVERHEAD  # Ethernet, IPv4, UDP
    text = (DOCS / "tutorials" / "lessons" / "window.md").read_text()
    assert f"needs {frame * 8 / 100e9 * 1e6:.3f} µs for a packet ({frame:,} bytes " in text
