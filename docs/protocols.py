"""Write the table of docs/measurements/protocols.md, with `python docs/protocols.py`.

A row is a scenario of scenarios/protocols, a column a change of it. All runs are in virtual time, so that the table
depends on the code only.
"""

from __future__ import annotations

from pathlib import Path

from fanin.experiments.results.measured import Measured
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.scenario.user_files import program_of
from fanin.experiments.virtual.point import run_virtual
from fanin.p4switch.engine.engine import Engine

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "measurements" / "protocols.md"
SCENARIOS = ROOT / "scenarios" / "protocols"
ROWS = ("fanin", "atp", "esa", "a2tp", "omnireduce", "switchml", "trio", "canary", "thc", "majority", "ring")
BEGIN, END = "<!-- table -->\n", "<!-- end of the table -->\n"

# The columns with times, and the changes of a scenario behind each.
TIMES: dict[str, tuple[str, ...]] = {
    "no loss": (),
    "0.1% loss": ("loss=0.1%",),
    "1% loss": ("loss=1%",),
    "16 slots": ("window=16", "slots=16"),
    "16 slots, late workers": ("window=16", "slots=16", "lateness=200 us"),
}


def measure(row: str, changes: tuple[str, ...] = ()) -> tuple[Settings, Measured]:
    """Run a row's scenario with changes, and return its settings and what was measured."""
    (point,) = load_scenario(SCENARIOS / f"{row}.toml", changes).points
    return point, run_virtual(point, Engine.load(program_of(point).device_config))


def cells(row: str) -> list[str]:
    """Return the cells of a row."""
    found = {name: measure(row, changes) for name, changes in TIMES.items()}
    times = [f"{1e6 * sorted(one.seconds)[len(one.seconds) // 2]:,.0f}" for _, one in found.values()]
    _, alone = found["no loss"]
    wrong = sum(one.violations for _, one in found.values())
    return [
        row,
        *times,
        f"{alone.wire_bytes_per_worker / 1e3:,.0f}",
        f"{alone.max_abs_error:.1g}",
        str(wrong),
        f"`fanin run scenarios/protocols/{row}.toml`",
    ]


def table() -> str:
    """Return the table in Markdown."""
    more = ("kB for each worker", "largest error", "wrong elements", "command")
    heads = ["", *(f"µs, {name}" for name in TIMES), *more]
    lines = [heads, ["---"] * len(heads), *map(cells, ROWS)]
    columns = [["column", "add to the command"], ["---"] * 2]
    for name, changes in TIMES.items():
        columns.append([name, " ".join(f"`--set '{change}'`" for change in changes) or "nothing"])
    return "\n".join("".join(f"| {' | '.join(line)} |\n" for line in part) for part in (lines, columns))


def main() -> None:
    """Replace the table of the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
