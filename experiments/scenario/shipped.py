"""Scenarios that come with fanin, by name, wherever it is installed: `lesson:loss`, `scenario:small-live`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fanin.experiments.scenario.file import Lesson, ScenarioError, load_frame

_SCENARIOS = Path(__file__).parents[2] / "scenarios"
_FOLDERS = {"lesson": _SCENARIOS / "lessons", "scenario": _SCENARIOS}


def scenario_file(given: str) -> Path:
    """The file of a shipped scenario, `KIND:NAME`, or else the file with this path.

    Raises:
        ScenarioError: fanin comes with none of this name; the message lists all.
    """
    kind, colon, name = given.partition(":")
    if not colon or kind not in _FOLDERS:
        return Path(given)
    path = _FOLDERS[kind] / f"{name}.toml"
    if path.parent != _FOLDERS[kind] or not path.is_file():
        raise ScenarioError(
            "\n  ".join([f"{given} is not among the scenarios that come with fanin:", *_list()])
        )
    return path


def lessons() -> dict[str, Lesson]:
    """Those that come with fanin, by name."""
    found = {path.stem: load_frame(path).lesson for path in sorted(_FOLDERS["lesson"].glob("*.toml"))}
    return {name: lesson for name, lesson in found.items() if lesson is not None}


def _list() -> Iterator[str]:
    """A line for each: what to type, and what it is."""
    for kind, folder in _FOLDERS.items():
        for path in sorted(folder.glob("*.toml")):
            yield f"{kind}:{path.stem}  {load_frame(path).description}"
