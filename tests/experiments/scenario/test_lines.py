"""The lines of keys in TOML, compared with what tomllib reads."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.scenario.lines import line_of, lines_of

SCENARIOS = Path(__file__).parents[3] / "scenarios"

TEXT = '''\
name = "a = b"  # [no.table]
text = """
[not.a.table]
key = 1
"""
list = [
    1,  # one = 1
    {a = 2},
]

[links]
loss = 0.1
burst = {begin = 0.1, end = 0.5}
"quoted key".x = 'it''s'

[topology.leaf_spine]
rate = "1 Gb/s"
[[faults]]
at = 1
[[faults]]
at = 2
[faults.more]
b = 3
'''.replace("'it''s'", "'its'")


def test_keys_are_on_their_lines() -> None:
    assert lines_of(TEXT) == {
        ("name",): 1,
        ("text",): 2,
        ("list",): 6,
        ("links",): 11,
        ("links", "loss"): 12,
        ("links", "burst"): 13,
        ("links", "quoted key", "x"): 14,
        ("topology", "leaf_spine"): 16,
        ("topology", "leaf_spine", "rate"): 17,
        ("faults", "0"): 18,
        ("faults", "0", "at"): 19,
        ("faults", "1"): 20,
        ("faults", "1", "at"): 21,
        ("faults", "1", "more"): 22,
        ("faults", "1", "more", "b"): 23,
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("links", "burst", "end"), 13),
        (("faults", "1", "link"), 20),
        (("links", "delay"), 11),
        (("size",), None),
    ],
)
def test_a_key_without_a_line_of_its_own_has_that_of_its_table(
    path: tuple[str, ...], line: int | None
) -> None:
    assert line_of(lines_of(TEXT), path) == line


def keys(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value that is no table."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if _tables(value) else ()
    for name, each in inner:
        yield from keys(each, (*path, str(name)))
    if not inner:
        yield path


def _tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def test_every_key_of_every_scenario_is_found() -> None:
    for file in SCENARIOS.rglob("*.toml"):
        text = file.read_text()
        lines, rows = lines_of(text), text.splitlines()
        for path in keys(tomllib.loads(text)):
            line = line_of(lines, path)
            assert line is not None, (file, path)
            known = max(range(1, len(path) + 1), key=lambda n: (path[:n] in lines) * n)
            assert path[known - 1] in rows[line - 1] or path[known - 1].isdecimal(), (file, path, line)
