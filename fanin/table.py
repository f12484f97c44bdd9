"""Tables of commands, which fit the terminal, and the same data as lines of JSON.

A verb builds its records once. `print_records` prints them for programs; `print_table` prints a table made of them for
people.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Column, Table

from fanin.console import Terminal, console, wide
from fanin.output import say

_GAP = 2  # between two columns: padding and the (invisible) line of the box
_NARROWEST = 20  # of a column of text, whose lines are wrapped; less only for shorter texts


def print_records(records: Iterable[Mapping[str, Any]]) -> None:
    """Print a line of JSON for each record. Numbers that JSON does not have, such as NaN, become null."""
    for record in records:
        say(json.dumps(_finite(record), allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value


def new_table(texts: Sequence[str], *numbers: str, title: str | None = None) -> Table:
    """Return an empty table.

    Args:
        texts: Headings of columns that are aligned at the left and may be wrapped.
        numbers: Headings of the columns that follow, aligned at the right and never wrapped.
        title: A line above the table.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, _GAP - 1, 0, 0),
        title=title,
        title_justify="left",
    )
    for heading in texts:
        table.add_column(heading, overflow="fold")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_table(table: Table, pinned: int = 1, *, markup: bool = False) -> None:
    """Print a table in the width of the terminal, or of COLUMNS.

    A table that is too wide continues below with its pinned columns repeated. Texts are wrapped; no cell is cut. A pipe
    or a file gets each row on one line, unless COLUMNS is set.

    Args:
        table: A table of new_table().
        pinned: The number of columns at the left that name a row.
        markup: Interpret Rich's markup in the cells.
    """
    columns = os.environ.get("COLUMNS", "")  # a Console reads it once only, when it is made
    terminal = Terminal(width=int(columns)) if columns.isdigit() else console if console.is_terminal else wide
    for number, block in enumerate(fitting(table, pinned, terminal, markup)):
        if number:
            terminal.print()
        terminal.print(block, highlight=False, markup=markup)


def fitting(table: Table, pinned: int, terminal: Console, markup: bool = False) -> Iterator[Table]:
    """Yield tables that fit the terminal and together have all columns of `table`."""
    options = terminal.options.update(width=10_000, max_width=10_000, markup=markup)

    def need(column: Column) -> int:
        widths = [Measurement.get(terminal, options, cell).maximum for cell in (column.header, *column.cells)]
        return max(widths) if column.no_wrap else min(max(widths), _NARROWEST)

    columns = table.columns
    names, rest = columns[:pinned], columns[pinned:]
    room = terminal.width - sum(need(column) + _GAP for column in names)
    if names and rest and room < terminal.width // 3:
        names = [_joined(names)]
        room = terminal.width - need(names[0]) - _GAP
    while True:
        taken, left = 0, room
        while taken < len(rest) and (not taken or need(rest[taken]) + _GAP <= left):
            left -= need(rest[taken]) + _GAP
            taken += 1
        yield _block(table, [*names, *rest[:taken]])
        rest = rest[taken:]
        if not rest:
            return


def _joined(columns: Sequence[Column]) -> Column:
    """Return one column with the cells of several, such as `2, 0.01`."""
    joined = new_table([", ".join(str(column.header) for column in columns)])
    for row in zip(*(column.cells for column in columns), strict=True):
        joined.add_row(", ".join(map(str, row)))
    return joined.columns[0]


def _block(table: Table, columns: Sequence[Column]) -> Table:
    found = new_table([], title=table.title if isinstance(table.title, str) else None)
    for column in columns:
        found.add_column(
            column.header, justify=column.justify, no_wrap=column.no_wrap, overflow=column.overflow
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        found.add_row(*row)
    return found
