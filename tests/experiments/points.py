"""Points of a small scenario in virtual time."""

from __future__ import annotations

from pathlib import Path

from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings

SCENARIO = """
name = "try"
size = "20 kB"
seed = [1, 2]
[topology.leaf_spine]
spines = 0
leaves = 1
hosts_per_leaf = 2
rate = "10 Gb/s"
"""


def points(folder: Path, *changes: str) -> tuple[Settings, ...]:
    file = folder / "try.toml"
    file.write_text(SCENARIO)
    return load_scenario(file, changes).points
