"""Tables fit the terminal without losing anything, and each command that prints one prints lines of JSON as well."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.table import Table
from typer.testing import CliRunner

from fanin.cli import VERBS, app, load
from fanin.console import Terminal
from fanin.table import fitting, new_table, print_records
from fanin.testbed.monitoring.snapshot import FormingView, LinkView, Snapshot, SwitchView
from fanin.verbs.running import top
from tests.testbed.monitoring.snapshots import NOW, job, worker

WIDTH = 80
SMALL = "scenario:small-virtual --set loss=0 --set seed=1"
ROOT = Path(__file__).parents[2]
TRACES = ROOT / "tests" / "experiments" / "workloads" / "traces"
HOSTS = tuple(f"h{number}" for number in range(1, 33))


def lines(table: Table, pinned: int = 1) -> list[str]:
    terminal = Terminal(width=WIDTH)
    with terminal.capture() as capture:
        for block in fitting(table, pinned, terminal):
            terminal.print(block, highlight=False, markup=False)
    return capture.get().splitlines()


words = st.text(st.sampled_from("abcdefgh-./"), min_size=1, max_size=60)
numbers = st.integers(0, 10**15).map("{:,}".format)


@given(st.data(), st.integers(1, 6), st.integers(0, 12), st.integers(1, 4))
def test_a_table_fits_and_shows_every_number_whole(
    data: st.DataObject, texts: int, count: int, rows: int
) -> None:
    table = new_table([f"text {number}" for number in range(texts)], *(f"n{i}" for i in range(count)))
    values = []
    for _ in range(rows):
        figures = data.draw(st.lists(numbers, min_size=count, max_size=count))
        table.add_row(*data.draw(st.lists(words, min_size=texts, max_size=texts)), *figures)
        values += figures
    shown = lines(table, texts)
    assert max(map(cell_len, shown)) <= WIDTH
    found = [word for line in shown for word in line.split()]
    assert all(found.count(value) >= values.count(value) for value in values)
    assert not any("…" in line for line in shown)


@given(
    st.lists(st.text("abcdefgh", min_size=1, max_size=10), min_size=2, max_size=2),
    st.lists(st.integers(1, 12), min_size=1, max_size=12),
)
def test_no_short_name_is_broken(names: list[str], widths: list[int]) -> None:
    table = new_table(["algorithm", "transport"], *("9" * width for width in widths))
    table.add_row(*names, *("1" * width for width in widths))
    for line in lines(table, 2):
        if line.strip("─"):
            assert {"algorithm", *names} & set(line.split()), line


def test_what_names_a_row_is_repeated_where_a_table_continues() -> None:
    table = new_table(["algorithm", "size"], *(f"a long heading {number}" for number in range(8)))
    table.add_row("in-network", "1 MB", *map(str, range(8)))
    shown = "\n".join(lines(table, 2))
    assert shown.count("algorithm") == shown.count("in-network") > 1


def snapshot() -> Snapshot:
    link = LinkView(
        sender="spine-with-a-name-12",
        receiver="leaf-with-a-name-31",
        rate=100_000_000_000,
        up=False,
        packets=10**12,
        bytes=10**15,
        lost=10**9,
        queue_bytes=123_456_789,
    )
    drops = {"MISMATCH": 10**9, "TTL": 10**9, "NO_LEASE": 10**9, "CHECKSUM": 10**9}
    return Snapshot(
        at=NOW,
        jobs=(job(*(worker(host, 3) for host in HOSTS), name="training-of-a-model-with-a-long-name"),),
        forming=(FormingView(name="late", hosts=HOSTS, workers=(worker("h1", None),), missing=HOSTS[1:]),),
        switches={"leaf-with-a-name-31": SwitchView(slots=1024, received=10**12, drops=drops)},
        links=(link,),
    )


def test_the_tables_of_top_fit() -> None:
    for table in top._tables(snapshot(), snapshot()):
        assert max(map(cell_len, lines(table))) <= WIDTH


def table_lines(printed: str) -> list[str]:
    """The lines of tables in what a command printed: from a heading, which has a line below it, to an empty line."""
    found, block = [], list[str]()
    for line in (*printed.splitlines(), ""):
        block.append(line)
        if not line.strip():
            ruled = any(each and not each.strip("─ ") for each in block[:-1])
            found += block[:-1] if ruled else []
            block = []
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        f"run {SMALL}",
        "run scenario:in-network-and-ring",
        f"sweep {SMALL} --restart",
        "rerun results/small-virtual",
        "compare results/small-virtual results/small-virtual",
        "cost --parameters 7G --compute 2s",
        "cost --model gpt-3-175b --tensor 8 --pipeline 8 --global-batch 512",
        "paths lesson:ecmp --set algorithm=ring --set seed=1 --set paths=ecmp --set flows_per_pair=1",
        "lesson list",
        "lab list",
        "bench collectives --scenario scenario:small-virtual --sizes 64KiB --repetitions 1",
        f"import {TRACES}/gloo-rank0.json.gz {TRACES}/gloo-rank1.json.gz",
    ],
)
def test_the_tables_of_commands_fit(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    if "results/" in command:
        assert CliRunner().invoke(app, f"run {SMALL}".split()).exit_code == 0
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    shown = table_lines(done.stdout)
    assert shown
    assert max(map(cell_len, shown)) <= WIDTH


def test_commands_leave_the_width_of_columns_to_the_table() -> None:
    """A format such as {:>11} makes rows that no terminal folds as a table."""
    verbs = ROOT / "fanin" / "verbs"
    assert [path.name for path in verbs.rglob("*.py") if re.search(r":[<>]\d", path.read_text())] == []


# -- JSON --------------------------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, Any]]:
    """Each command of the tree, with its words."""
    for name in VERBS:
        command = load(name)
        below = getattr(command, "commands", None)
        if below:
            yield from ((f"{name} {each}", found) for each, found in below.items())
        else:
            yield name, command


PRINTERS = ("print_table(", "run_points import")  # what prints tables


def prints_tables(command: Any) -> bool:
    """Return whether a command prints a table, itself or by functions of its module."""
    function = inspect.unwrap(command.callback)
    others = dict(inspect.getmembers(sys.modules[function.__module__], inspect.isfunction))
    source, left = "", [function]
    while left:
        source += (added := inspect.getsource(left.pop()))
        left += [others.pop(name) for name in list(others) if f"{name}(" in added]
    return any(printer in source for printer in PRINTERS)


def test_every_command_that_prints_a_table_has_json() -> None:
    tabular = {words: command for words, command in commands() if prints_tables(command)}
    assert {"run", "sweep", "rerun", "lesson run", "validate", "bench switch", "up", "top"} <= tabular.keys()
    without = [
        words
        for words, command in tabular.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert without == []


@pytest.mark.few(3)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        (f"run {SMALL} --json", {"key", "median_seconds", "goodput_bits_per_second", "error"}),
        (f"sweep {SMALL} --json", {"key", "median_seconds"}),
        (f"sweep {SMALL} --restart --dry-run --json", {"about_seconds", "memory_bytes"}),
        ("rerun results/small-virtual --json", {"key", "before_median_seconds", "median_seconds", "same"}),
        ("compare results/small-virtual results/small-virtual --json", {"point", "before", "after"}),
        ("lesson list --json", {"lesson", "title", "seconds"}),
        ("cost --parameters 7G --compute 2s --json", {"gpus", "algorithm", "dollars_per_day"}),
        ("paths lesson:ecmp --set algorithm=ring --set seed=1 --json", {"point", "source", "hops"}),
    ],
)
def test_standard_output_has_the_json_alone(
    command: str, keys: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if "results/" in command:
        assert CliRunner().invoke(app, f"run {SMALL}".split()).exit_code == 0
    done = CliRunner().invoke(app, command.split())
    assert done.exit_code == 0, done.output
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records
    assert all(keys <= record.keys() for record in records)


def test_numbers_that_json_does_not_have_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_records([{"a": float("nan"), "b": [float("inf"), 1.5]}])
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5]}
