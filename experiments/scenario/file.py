"""Scenario files: experiments in TOML.

Wherever a file may have a single value, it may have a list of values. It then describes the product of all lists, with
a point for each combination.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from fanin.experiments.names import instead, likely
from fanin.experiments.protocol import ProtocolError, built_in, folder_of
from fanin.experiments.protocol import load as load_protocol
from fanin.experiments.scenario.lines import line_of, lines_of
from fanin.experiments.scenario.settings import (
    AUTO,
    FILES,
    KEYS,
    OF_SWITCHES,
    KeyPath,
    Settings,
    setting_columns,
    table_in,
)
from fanin.experiments.scenario.tables.figure import Plot
from fanin.experiments.scenario.tables.table import Table
from fanin.experiments.scenario.tables.topology import TopologySettings
from fanin.experiments.scenario.tables.workload import FILLED_IN, Workload
from fanin.experiments.schedule_file import is_file
from fanin.experiments.workloads.trace_files import load_trace
from fanin.native.files import read_bytes
from fanin.native.python_file import PythonFileError
from fanin.native.text import did_you_mean
from fanin.topologies.units import Seconds
from fanin.workers.host_based.algorithms.registry import algorithm_names

_HOSTS: KeyPath = ("hosts",)  # the only key of Settings whose single value is a list
_BEGINS_WITH_KEY = re.compile(r"[\w.\[\]-]+: ")  # matches the beginning of an error's line
_ALL_KEYS = "see docs/reference/scenario-keys.md"
_MOST_HINTS = 4
_CALLED_OTHERWISE = {"bits": "values (512 or 128 integers of 16 bits in a packet, 256 or 64 of 32 bits)"}
_OTHERS_FOLLOW = {"topology", "workload"}  # tables on whose values the checks of most other keys depend
_COMPUTE: KeyPath = ("compute",)  # the only key of Frame that --set can change

_UNPREDICTED = "the rates of the hosts' links differ, which its analytical model does not know"

# Predicts the seconds of an all-reduce of a point, or returns None where it cannot.
Predict = Callable[[Settings], float | None]


class ScenarioError(ValueError):
    """An invalid scenario; each line of the message names the file and the key, what is wrong, and how to fix it."""


class Lesson(Table):
    """The table that makes a scenario a lesson, for `fanin lesson`; docs/tutorials/lessons explains it."""

    title: Annotated[str, Field(description="the question that the lesson answers")]
    seconds: Annotated[int, Field(gt=0, description="seconds that it takes on two cores, roughly")]
    see: Annotated[str, Field(description="what the table and the figure show")]
    see_small: Annotated[
        str, Field(description="what they show with the changes of small; default: the same as see")
    ] = ""
    small: Annotated[
        tuple[str, ...], Field(description="changes that make it small and quick, as for --set")
    ] = ()
    theatre: Annotated[
        tuple[str, ...],
        Field(
            description="changes that leave a few points of few packets, as for --set; empty: it has no theatre"
        ),
    ] = ()
    wrong: Annotated[bool, Field(description="some sums are wrong on purpose")] = False
    fails: Annotated[str | None, Field(description="some points fail with this error on purpose")] = None

    def shown(self, changes: Sequence[str]) -> str:
        """Return what the table and the figure of a run show.

        Args:
            changes: The changes of the file's settings. Other ones than `small` leave only what the file's own show.
        """
        if not changes:
            return self.see.strip()
        if tuple(changes) == self.small:
            return (self.see_small or self.see).strip()
        return f"With the lesson's own settings, without --set:\n{self.see.strip()}"


class Frame(Table):
    """The part of a scenario file that does not concern single points."""

    name: Annotated[
        str,
        StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$"),
        Field(description="name of the scenario and of its folder of results"),
    ]
    description: Annotated[str, Field(description="what the scenario is for, in a sentence")] = ""
    plot: Annotated[Plot | None, Field(description="the figure that a run draws")] = None
    compute: Annotated[
        Seconds | None,
        Field(
            gt=0,
            description="time that a GPU computes between two all-reduces, for the price of waiting; changes no run",
        ),
    ] = None
    lesson: Annotated[Lesson | None, Field(description="makes the scenario a lesson")] = None


# The short names of keys that concern the whole file.
_OF_THE_FILE = frozenset(
    f"{table}_{key}" for table, of in (("plot", Plot), ("lesson", Lesson)) for key in of.model_fields
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The reason for the algorithm of a point with `algorithm = "auto"`.

    Attributes:
        seconds: The predicted seconds of an all-reduce with each algorithm that the point allows.
        problems: Why the point does not allow the other algorithms, by their names.
    """

    seconds: Mapping[str, float]
    problems: Mapping[str, str]

    @property
    def algorithm(self) -> str:
        """Return the algorithm with the smallest prediction."""
        return min(self.seconds, key=self.seconds.__getitem__)

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Return columns of results: lists with an element for each algorithm."""
        names = [*self.seconds, *self.problems]
        return {
            "candidates": names,
            "candidate_seconds": [self.seconds.get(name) for name in names],
            "candidate_problems": [self.problems.get(name) for name in names],
        }


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario file that has been read.

    Attributes:
        frame: The part that does not concern single points.
        text: The file's text.
        points: The settings of each point.
        choices: The reasons for algorithms that were chosen, by the keys of points.
    """

    frame: Frame
    text: str
    points: tuple[Settings, ...]
    choices: Mapping[str, Choice] = field(default_factory=dict)

    @property
    def varied(self) -> list[str]:
        """Return the columns in which the points differ."""
        return varied_in(self.points)


def varied_in(points: Sequence[Settings]) -> list[str]:
    """Return the columns in which these points differ."""
    rows = [setting_columns(point) for point in points]
    names = [*KEYS]
    # The column topology replaces the keys of topology tables if there are different tables, which share no keys.
    if len({point.topology.table for point in points}) > 1 or points[0].topology.switches:
        names = [*(name for name, path in KEYS.items() if not _of_a_table(path)), "topology"]
    if all(point.workload for point in points):
        names = [name for name in names if KEYS.get(name) not in FILLED_IN]
    if any(point.hosts for point in points):
        names.append("hosts")
    found = {name: {row[name] for row in rows} for name in names}
    for name in OF_SWITCHES:  # the algorithm tells which rows have them
        found.get(name, set()).discard(None)
    return [name for name, values in found.items() if len(values) > 1]


def _of_a_table(path: KeyPath) -> bool:
    """Return whether this is a key of leaf_spine, fat_tree or servers."""
    return path[0] == "topology" and len(path) > len(("topology", "offload"))


def load_scenario(path: Path, changes: Sequence[str] = (), predict: Predict | None = None) -> Scenario:
    """Read a scenario file.

    Args:
        path: The file.
        changes: Changes of the form `KEY=VALUE,VALUE…`, each of which replaces a value of the file.
        predict: Makes the predictions by which `algorithm = "auto"` chooses. None refuses "auto".

    Raises:
        ScenarioError: If anything is wrong; the message lists everything.
    """
    text, document = _read(path)
    changed, found = _Problems(), _Problems()
    for change in changes:
        with changed.noted():
            _change(document, change)
    with found.noted():
        frame = _take_frame(document)
    with found.noted():
        points = _points(document, path.parent, predict)
    replaced = {_path_of(change.partition("=")[0]) for change in changes}
    if lines := [*changed, *_located(path, text, found, replaced)]:
        raise ScenarioError("\n".join(lines))
    return Scenario(_as_changed(frame, changes), text, *points)


def _as_changed(frame: Frame, changes: Sequence[str]) -> Frame:
    """Return a frame whose figure fits the changes.

    They are its title if the file has one, which describes the file's settings. The figure leaves out no rows because
    of a value that a change replaces.
    """
    if not changes or frame.plot is None:
        return frame
    changed = {_path_of(change.partition("=")[0]) for change in changes}
    update: dict[str, Any] = {
        "where": {name: values for name, values in frame.plot.where.items() if _path_of(name) not in changed}
    }
    if frame.plot.title is not None:
        update["title"] = f"{frame.name}: {', '.join(changes)}"
    return frame.model_copy(update={"plot": frame.plot.model_copy(update=update)})


def _path_of(name: str) -> KeyPath:
    """Return the place of a key that has its short name or its table before it."""
    return KEYS.get(name) or tuple(name.split("."))


def load_frame(path: Path) -> Frame:
    """Read the part of a scenario file that does not concern single points; the points are not checked.

    Raises:
        ScenarioError: If anything is wrong; the message lists everything.
    """
    text, document = _read(path)
    try:
        return _take_frame(document)
    except ScenarioError as error:
        raise ScenarioError("\n".join(_located(path, text, str(error).splitlines()))) from None


def load_network(path: Path) -> TopologySettings:
    """Read a network from a TOML file that looks like the table `topology` of a scenario.

    Raises:
        ScenarioError: If anything is wrong; the message lists everything.
    """
    text, document = _read(path)
    try:
        return TopologySettings.model_validate(document)
    except ValidationError as error:
        raise ScenarioError("\n".join(_located(path, text, _all(error, TopologySettings)))) from None


class _Problems(dict[str, None]):
    """Problems of a file, each once, in their order. A line that begins with a space belongs to the one before."""

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Add an error's problems, and end the block."""
        try:
            yield
        except ScenarioError as error:
            self.update(dict.fromkeys(re.split(r"\n(?! )", str(error))))


def _located(path: Path, text: str, problems: Iterable[str], replaced: Collection[KeyPath] = ()) -> list[str]:
    """Return problems in the order of their lines, with the file and the line of the key with which they begin.

    Args:
        path: The file.
        text: Its text.
        problems: The problems.
        replaced: Keys whose values are not those of the file.
    """
    lines = lines_of(text)
    found = []
    for problem in problems:
        key = tuple(problem.partition(": ")[0].split(".")) if _BEGINS_WITH_KEY.match(problem) else ()
        line = None if key in replaced else line_of(lines, key)
        found.append((line or 0, f"{path}:{line}: {problem}" if line else f"{path}: {problem}"))
    return [text for _, text in sorted(found, key=itemgetter(0))]


_MOST_BYTES = 4 << 20  # TOML of this length takes seconds
_TRACES = {".json", ".gz", ".et", ".log"}  # suffixes of what fanin import reads


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file, and the TOML in it."""
    if path.is_dir():
        raise ScenarioError(
            f"{path}: is a folder, not a scenario; to repeat the points of results: fanin rerun {path}"
        )
    try:
        text = read_bytes(path, _MOST_BYTES).decode()
        return text, tomllib.loads(text)
    except OSError as error:
        there = {one.stem: one for one in path.parent.glob("*.toml")}
        meant = get_close_matches(path.stem, there, 1)
        hint = f"; did you mean {there[meant[0]]}?" if meant else ""
        raise ScenarioError(f"{path} cannot be read: {error.strerror}{hint}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        if set(path.suffixes) & _TRACES:
            raise ScenarioError(
                f"{path}: is not a scenario; to make one of a trace: fanin import {path} -o scenario.toml"
            ) from None
        raise ScenarioError(f"{path}: cannot be read as TOML: {error}") from None


def _take_frame(document: dict[str, Any]) -> Frame:
    parts = {key: document.pop(key) for key in Frame.model_fields if key in document}
    try:
        return Frame.model_validate(parts)
    except ValidationError as error:
        raise ScenarioError("\n".join(_all(error, Frame))) from None


# -- changes -----------------------------------------------------------------------------------------------------


def _change(document: dict[str, Any], change: str) -> None:
    name, equals, values = change.partition("=")
    if not name or not equals or not values:
        raise ScenarioError(f"--set {change}: write KEY=VALUE or KEY=VALUE,VALUE")
    path = _path_of(name)
    if name in _OF_THE_FILE or path[0] in Frame.model_fields.keys() - set(_COMPUTE):
        folder = "; for another folder of results, use --results DIR" if name == "name" else ""
        raise ScenarioError(f"--set {name}: only the file can set it{folder}")
    if path not in (*KEYS.values(), _HOSTS, ("topology",), _COMPUTE):
        raise ScenarioError(f"--set {name}: unknown key{_meant(name, [*KEYS, *_HOSTS, *_COMPUTE])}")
    found = _values(values)
    _set(document, path, found[0] if path == _COMPUTE and len(found) == 1 else found)


def _values(text: str) -> list[Any]:
    """Parse `text` as the elements of a TOML list; words without quotes become strings."""
    try:
        values: list[Any] = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        if "," not in text:
            return [text.strip()]
        return [value for part in text.split(",") for value in _values(part)]
    return values


def _set(document: dict[str, Any], path: KeyPath, value: Any) -> None:
    for i, part in enumerate(path[:-1]):
        document = document.setdefault(part, {})
        if not isinstance(document, dict):
            raise ScenarioError(f"{'.'.join(path)}: {'.'.join(path[: i + 1])} is not a table here")
    document[path[-1]] = value


# -- points ------------------------------------------------------------------------------------------------------


def _points(
    document: dict[str, Any], folder: Path, predict: Predict | None
) -> tuple[tuple[Settings, ...], dict[str, Choice]]:
    """Return the points, and the reasons for algorithms that were chosen, by the keys of points."""
    axes = dict(_axes(document))
    found: dict[str, Settings] = {}
    choices: dict[str, Choice] = {}
    problems = _Problems()
    for values in product(*axes.values()):
        point = deepcopy(document)
        for path, value in zip(axes, values, strict=True):
            _set(point, path, value)
        with problems.noted():
            _read_files(point, folder)
            if point.get("algorithm") == AUTO:
                settings, choice = _chosen(point, predict)
                choices[settings.key] = choice
            else:
                settings = _settings(point)
            found.setdefault(settings.key, settings)
    if problems:
        raise ScenarioError("\n".join(problems))
    return tuple(found.values()), choices


def _settings(point: Mapping[str, Any]) -> Settings:
    """Return the settings of a point.

    Raises:
        ScenarioError: If keys are wrong. The message also states which keys do not fit together, as far as that does
            not depend on those that are wrong by themselves.
    """
    try:
        return Settings.model_validate(point).settled
    except ValidationError as error:
        lines = _all(error, Settings)
        wrong = {one["loc"]: one["type"] for one in error.errors() if one["loc"]}
    unknown = {place for place, kind in wrong.items() if kind == "extra_forbidden"}
    if wrong and all(place in unknown or place[0] not in _OTHERS_FOLLOW for place in wrong):
        words = "|".join(re.escape(str(place[-1])) for place in wrong.keys() - unknown)
        lines += [
            line
            for line in _together(deepcopy(dict(point)), wrong)
            if not (words and re.search(rf"\b({words})\b", line))
        ]
    raise ScenarioError("\n".join(lines))


def _together(point: dict[str, Any], wrong: Iterable[tuple[int | str, ...]]) -> Iterator[str]:
    """Yield what is wrong with keys together, once those at these places have been removed from the point."""
    for place in wrong:
        table: Any = point
        for part in place[:-1]:
            table = table.get(part) if isinstance(table, dict) else None
        if not isinstance(table, dict) or place[-1] not in table:
            return
        del table[place[-1]]
    try:
        Settings.model_validate(point)
    except ValidationError as error:
        if not any(one["loc"] for one in error.errors()):
            yield from _all(error, Settings)


def _chosen(point: Mapping[str, Any], predict: Predict | None) -> tuple[Settings, Choice]:
    """Return the settings of a point with the algorithm that is predicted to take the shortest time, and the reason.

    An algorithm that the other settings do not allow is no candidate.

    Raises:
        ScenarioError: If there is no candidate, or nothing can be predicted.
    """
    if predict is None:
        raise ScenarioError(f"algorithm: {AUTO!r} cannot be used here; name an algorithm")
    if point.get("world") == "live":
        raise ScenarioError(
            f"algorithm: {AUTO!r} is virtual only, since the analytical model knows no processor time; name an "
            "algorithm, or set world = 'virtual'"
        )
    if "parallelism" in point:
        raise ScenarioError(f"algorithm: {AUTO!r} cannot be combined with parallelism; name an algorithm")
    allowed: dict[str, Settings] = {}
    refused: dict[str, list[str]] = {}
    for name in algorithm_names():
        try:
            allowed[name] = Settings.model_validate({**point, "algorithm": name}).settled
        except ValidationError as error:
            refused[name] = _all(error, Settings)
    if not allowed:
        first, *others = refused.values()
        shared = [line for line in first if all(line in lines for lines in others)]
        raise ScenarioError(
            "\n".join(shared or (f"{line} ({name})" for name, lines in refused.items() for line in lines))
        )
    predicted = {name: predict(settings) for name, settings in allowed.items()}
    seconds = {name: time for name, time in predicted.items() if time is not None}
    if not seconds:
        raise ScenarioError(
            f"algorithm: {AUTO!r} needs the rate of the hosts' links; set the topology's rate, or name an algorithm"
        )
    problems = {name: "; ".join(lines) for name, lines in refused.items()}
    problems |= dict.fromkeys(predicted.keys() - seconds.keys(), _UNPREDICTED)
    choice = Choice(seconds, problems)
    return allowed[choice.algorithm], choice


def _axes(table: Mapping[str, Any], above: KeyPath = ()) -> Iterator[tuple[KeyPath, list[Any]]]:
    """Yield the keys that hold lists of values, in the file's order."""
    for key, value in table.items():
        path = (*above, key)
        if isinstance(value, dict):
            yield from _axes(value, path)
        elif isinstance(value, list) and (path in (*KEYS.values(), ("topology",)) or _lists(path, value)):
            if not value:
                raise ScenarioError(f"{'.'.join(path)}: is an empty list; give at least one value")
            yield path, value


def _lists(path: KeyPath, value: list[Any]) -> bool:
    """Return whether the value is a list of several lists of hosts."""
    return path == _HOSTS and bool(value) and all(isinstance(part, list) for part in value)


def _read_files(point: dict[str, Any], folder: Path) -> None:
    """Replace the names of files, which are relative to the scenario, and fill in what follows from the files.

    Raises:
        ScenarioError: If a file is wrong; the message lists what is wrong with other keys, too.
    """
    problems = _Problems()
    with problems.noted():
        _read_topology(point, folder)
    for key in FILES:
        with problems.noted():
            _find_file(point, key, folder)
    workload = point.get("workload")
    if isinstance(workload, dict) and "trace" in workload:
        named = workload["trace"] if isinstance(workload["trace"], list) else [workload["trace"]]
        if all(isinstance(name, str) for name in named):
            workload["trace"] = [str((folder / name).resolve()) for name in named]
    for table in (point.get("traffic"), point.get("arrivals")):
        if isinstance(table, dict) and isinstance(table.get("trace"), str):
            table["trace"] = str((folder / table["trace"]).resolve())
    with problems.noted():
        _fill_in_workload(point)
    if problems:
        known = {line.partition(":")[0].partition(".")[0] for line in problems}
        known |= {"topology"} if isinstance(point.get("topology"), str) else set()
        try:
            Settings.model_validate({key: value for key, value in point.items() if key not in known})
        except ValidationError as error:
            rest = [one for one in error.errors() if one["loc"] and one["loc"][0] not in known]
            problems.update(dict.fromkeys(line for one in rest for line in _explain(one, Settings)))
        raise ScenarioError("\n".join(problems))


def _read_topology(point: dict[str, Any], folder: Path) -> None:
    """Replace the name of a topology file with its contents, so that results contain the whole network."""
    name = point.get("topology")
    if isinstance(name, str):
        point["topology"] = load_network(folder / name)


def _find_file(point: dict[str, Any], key: str, folder: Path) -> None:
    """Replace the name of a file with its absolute path, which results then contain."""
    if not isinstance(name := point.get(key), str) or (key == "algorithm" and not is_file(name)):
        return
    if key == "protocol":
        if name not in built_in():
            name = point[key] = str((folder / name).resolve())
        try:
            load_protocol(folder_of(name))
        except (ProtocolError, PythonFileError) as error:
            raise ScenarioError(f"{key}: {error}") from None
        return
    path = (folder / name).resolve()
    point[key] = str(path) if key == "algorithm" else path
    if not path.is_file():
        raise ScenarioError(f"{key}: {path} does not exist")


def _fill_in_workload(point: dict[str, Any]) -> None:
    """Add the keys that follow from the workload, so that results contain them.

    Raises:
        ScenarioError: If the table is wrong, the scenario sets one of these keys itself, or keys do not fit together.
    """
    table = point.get("workload")
    if not isinstance(table, dict):
        return
    try:
        workload = Workload.model_validate(table)
    except ValidationError as error:
        raise ScenarioError("\n".join(f"workload.{line}" for line in _all(error, Workload))) from None
    parallelism = point.get("parallelism")
    try:
        if workload.trace:
            filled = workload.of_trace(point, load_trace(workload.trace))
        else:
            filled = workload.filled_in(parallelism if isinstance(parallelism, dict) else None)
    except ValueError as error:
        raise ScenarioError(str(error)) from None
    for key, value in filled.items():
        own = point.setdefault(key, {} if isinstance(value, dict) else value)
        if not isinstance(value, dict):
            given = [key] if own is not value else []
        else:
            given = [f"{key}.{name}" for name in own if name in value]
            own.update(value)
        if given:
            raise ScenarioError(
                "\n".join(f"{name}: follows from the workload; leave it out" for name in given)
            )


# -- errors ------------------------------------------------------------------------------------------------------


def _all(error: ValidationError, table: type[BaseModel]) -> list[str]:
    """Return the lines of all errors."""
    return [line for one in error.errors() for line in _explain(one, table)]


def _explain(one: ErrorDetails, table: type[BaseModel]) -> Iterator[str]:
    """Yield the lines of an error: the key, what is wrong, and the fix."""
    place, value = ".".join(map(str, one["loc"])), one["input"]
    match one["type"]:
        case "missing":
            yield f"{place}: missing; add it"
        case "extra_forbidden":
            *above, name = one["loc"]
            yield f"{place}: unknown key{_meant(str(name), _keys(table, above), in_table=bool(above))}"
        case "literal_error":
            allowed = one["ctx"]["expected"]
            words = re.findall(r"'([\w-]+)'", allowed)
            yield f"{place}: is {value!r}, must be {allowed}{did_you_mean(likely(str(value), words))}"
        case "tuple_type":
            yield f"{place}: is {value!r}, must be a list, such as [{value!r}]"
        case "model_type":
            yield f"{place}: is {value!r}, must be a table"
        case "value_error" if isinstance(value, dict):  # lines of a table's error may begin with a key
            for line in str(one["ctx"]["error"]).splitlines():
                joint = "." if _BEGINS_WITH_KEY.match(line) else ": "
                yield f"{place}{joint}{line}" if place else line
        case "value_error":
            yield f"{place}: is {value!r}; {one['ctx']['error']}"
        case _:
            yield f"{place}: is {value!r}; {one['msg'][0].lower()}{one['msg'][1:]}"


def _meant(name: str, there: Sequence[str], *, in_table: bool = False) -> str:
    """Return which key was perhaps meant by an unknown one, and which there are.

    Args:
        name: The unknown key.
        there: The keys that are known in its place.
        in_table: Whether it is in a table; elsewhere, the keys of all tables may be meant.
    """
    if hint := _CALLED_OTHERWISE.get(name):
        return f"; did you mean {hint}?"
    if in_table and name in (*Settings.model_fields, *Frame.model_fields):
        return did_you_mean(likely(name, there), f"the file's own {name!r} belongs above the first table")
    if places := [".".join(path) for path in KEYS.values() if path[-1] == name]:
        return did_you_mean(places[:_MOST_HINTS])
    if not in_table and (short := [one for one in likely(name, [*there, *KEYS]) if one not in there]):
        return did_you_mean([".".join(KEYS[one]) for one in short], f"for all keys, {_ALL_KEYS}")
    return instead(name, there, "keys", _ALL_KEYS)


def _keys(table: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the keys of the table at `path`."""
    for part in path:
        if isinstance(part, str):
            inner = table_in(table.model_fields[part].annotation)
            assert inner is not None
            table = inner
    names = list(table.model_fields)
    return [*Frame.model_fields, *names] if table is Settings else names
