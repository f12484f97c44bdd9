"""Scenarios that come with fanin, by name, wherever it is installed: `lesson:loss`, `scenario:small-live`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fanin.experiments.scenario.file import Lesson, ScenarioError, load_frame
from fanin.native.text import nearest

_SCENARIOS = Path(__file__).parents[2] / "scenarios"
_FOLDERS = {"lesson": _SCENARIOS / "lessons", "paper": _SCENARIOS / "papers", "scenario": _SCENARIOS}


def scenario_file(given: str) -> Path:
    """Return the file of a shipped scenario, `KIND:NAME`, or the path of any other file.

    Raises:
        ScenarioError: If there is no shipped scenario of this name; the message lists all.
    """
    kind, colon, name = given.partition(":")
    names = [f"{each}:{file.stem}" for each, folder in _FOLDERS.items() for file in folder.glob("*.toml")]
    if not colon or kind not in _FOLDERS:
        meant = [each for each in names if each.partition(":")[2] == given]
        if meant and not Path(given).exists():
            raise ScenarioError(
                f"{given}: no such file; the scenario that comes with fanin is {' or '.join(meant)}"
            )
        return Path(given)
    if given not in names:
        these = "these come with fanin:"
        near = nearest(given, names, these)
        problem = f"no such scenario{near}" if name else f"the name is missing; {these}"
        raise ScenarioError("\n  ".join([f"{given}: {problem}", *_list()]))
    return _FOLDERS[kind] / f"{name}.toml"


def lessons() -> dict[str, Lesson]:
    """Return the lessons that come with fanin, by name."""
    found = {path.stem: load_frame(path).lesson for path in sorted(_FOLDERS["lesson"].glob("*.toml"))}
    return {name: lesson for name, lesson in found.items() if lesson is not None}


def _list() -> Iterator[str]:
    """Yield a line for each shipped scenario: its name and its description."""
    for kind, folder in _FOLDERS.items():
        for path in sorted(folder.glob("*.toml"), key=lambda path: path.stem):
            yield f"{kind}:{path.stem}  {load_frame(path).description}"
