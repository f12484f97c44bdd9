"""Reference pages made of the code while the site is built: commands, scenario keys, Python API, job service."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def _cell(text: str) -> str:
    """Return text as it may stand in a cell of a Markdown table."""
    return re.sub(r"\s+", " ", text).replace("|", r"\|").replace("<", "&lt;").replace("*", r"\*").strip()


def _code(text: str) -> str:
    """Return text as code, also within a cell of a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    if rows:
        for row in (header, ("---",) * len(header), *rows):
            yield f"| {' | '.join(row)} |"
        yield ""


# -- commands ------------------------------------------------------------------------------------------------------

# A line below "Examples:", as cli.py marks it for the terminal.
_EXAMPLE = re.compile(r"^\[cyan\] *(.*?)\[/\]\n?", re.M)


def _command(path: str, command: Any) -> Iterator[str]:
    import typer

    yield f"{'#' * len(path.split())} {path}"
    yield ""
    context = typer.Context(command, info_name=path)
    text = textwrap.dedent(command.help or "").replace("\b", "")
    yield _EXAMPLE.sub("", text).replace("<", r"\<").replace("*", r"\*").strip()
    yield ""
    if examples := _EXAMPLE.findall(text):
        yield from ("```bash", *examples, "```", "")
    yield "```text"
    yield " ".join([path, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    rows: dict[str, list[tuple[str, ...]]] = {"argument": [], "option": []}
    for parameter in command.params:
        if record := parameter.get_help_record(context):
            default = re.search(r"\[default: \(?(.*?)\)?(?:; (?:\d+<=)?x|\])", record[1])
            meaning = _cell(parameter.help or "")
            rows[parameter.param_type_name].append(
                (_code(record[0]), meaning, _code(default[1]) if default else "")
            )
    for kind, found in rows.items():
        yield from _table((kind, "meaning", "default"), found)
    for name, below in sorted(getattr(command, "commands", {}).items()):
        yield from _command(f"{path} {name}", below)


def commands() -> str:
    """Return a section for each command of `fanin`, with its arguments and options."""
    from fanin.cli import VERBS, load

    return "\n".join(line for name in VERBS for line in _command(f"fanin {name}", load(name)))


# -- scenario keys -------------------------------------------------------------------------------------------------


# A number with a unit: a part of its pattern in the schema, and an example.
_QUANTITIES = (("%$", "1%"), ("(s|", "10 us"), ("b/s", "100 Gb/s"), ("elements", "4 MB"), ("KiB", "64 KiB"))


def _type(schema: dict[str, Any]) -> str:
    """Return what a key takes, in words; a list of values, which nearly every key takes for a sweep, is left out."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return _code(json.dumps(schema["const"]))
    if "enum" in schema:
        return ", ".join(_code(json.dumps(each)) for each in schema["enum"])
    if "anyOf" in schema:
        taken = dict.fromkeys(_type(each) for each in schema["anyOf"] if each.get("type") != "null")
        return " or ".join(
            each for each in taken if each.removeprefix("list of ") not in taken or each[:5] != "list "
        )
    if each := schema.get("prefixItems"):
        return f"list of {len(each)} {_type(each[0])}s"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"table of {_type(schema['additionalProperties'])}"
    if "minimum" in schema and "maximum" in schema:
        return f"{schema['type']} from {schema['minimum']} to {schema['maximum']}"
    limits = [
        f"{sign} {schema[key]}"
        for key, sign in [
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        ]
        if key in schema
    ]
    kind = schema.get("type", "any value")
    if quantity := next(
        (_code(json.dumps(q)) for unit, q in _QUANTITIES if unit in schema.get("pattern", "")), ""
    ):
        return quantity
    if isinstance(kind, list):
        kind = " or ".join(kind)
    return " ".join([kind, ", ".join(limits).replace("<", "&lt;")]).strip()


def _used_by(name: str, schema: dict[str, Any]) -> str:
    """Return the keys whose value is the table of this name."""
    tables = {"": schema, **{f"{table}.": definition for table, definition in schema["$defs"].items()}}
    keys = (
        _code(table + key)
        for table, definition in tables.items()
        for key, value in definition.get("properties", {}).items()
        if f'"#/$defs/{name}"' in json.dumps(value)
    )
    return ", ".join(keys)


def _keys(schema: dict[str, Any]) -> Iterator[str]:
    if description := schema.get("description"):
        yield _cell(description)
        yield ""
    rows = []
    for key, value in schema.get("properties", {}).items():
        default = value.get("default")
        shown = "" if default is None or isinstance(default, dict | list) else _code(json.dumps(default))
        needed = "required" if key in schema.get("required", ()) else shown
        rows.append((_code(key), _type(value), needed, _cell(value.get("description", ""))))
    yield from _table(("key", "takes", "default", "meaning"), rows)


def scenario_keys() -> str:
    """Return the tables and keys of a scenario, from its JSON schema."""
    schema = json.loads((ROOT / "scenarios" / "scenario.schema.json").read_text())
    lines = ["## Top level", "", *_keys(schema)]
    for name, definition in schema["$defs"].items():
        lines += [f"## {name}", "", f"Table of: {_used_by(name, schema)}.", "", *_keys(definition)]
    return "\n".join(lines)


# -- Python API ----------------------------------------------------------------------------------------------------


def _prose(text: str) -> str:
    return re.sub(r"([<*_])", r"\\\1", text)


def _docstring(documented: object) -> Iterator[str]:
    """Yield a docstring as Markdown, with an item of a list for each `name: text` that begins or continues one.

    The arguments of a class are left out, because a program gets its objects from functions.
    """
    lines: list[str] = []
    text = inspect.getdoc(documented) or ""
    if inspect.isclass(documented):
        text = text.partition("\nArgs:\n")[0]
    for line in text.splitlines():
        head = line.strip()
        if head in ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:"):
            lines += ["", f"**{head[:-1]}**", ""]
        elif re.match(r"[\w.]+(, [\w.]+)*: \S", head) and (
            not lines or not lines[-1] or lines[-1][:2] in ("- ", "  ")
        ):
            name, _, text = head.partition(": ")
            lines.append(f"- `{name}`: {_prose(text)}")
        elif lines and lines[-1].startswith(("- ", "  ")) and head:
            lines.append(f"  {_prose(head)}")
        else:
            lines.append(_prose(head))
    yield from lines
    yield ""


def _signature(name: str, function: Callable[..., Any]) -> Iterator[str]:
    signature = str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,) ]|$)", r"\1\3", signature)  # annotations are strings
    yield "```python"
    if len(name + signature) > 90:
        for character in ("(", ", ", ") ->"):
            signature = re.sub(
                rf"{re.escape(character)}(?![^\[]*\])",
                {"(": "(\n    ", ", ": ",\n    ", ") ->": ",\n) ->"}[character],
                signature,
                count=0 if character == ", " else 1,
            )
    yield name + signature
    yield "```"
    yield ""


def _public_methods(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in vars(kind).items():
        if inspect.isfunction(method) and not name.startswith("_") and inspect.getdoc(method):
            yield name, method


def python_api() -> str:
    """Return what `fanin` exports to programs on hosts: init(), the methods of what it returns, and the exceptions."""
    import fanin
    import fanin.workers.api as api
    from fanin.workers.collective import CollectiveError
    from fanin.workers.communicator import Communicator, Handle
    from fanin.workers.job.membership import JoinError

    lines = ["## fanin.init", "", *_signature("fanin.init", fanin.init), *_docstring(fanin.init)]
    for kind in (Communicator, Handle):
        lines += [f"## {kind.__name__}", "", *_docstring(kind)]
        for name, method in _public_methods(kind):
            lines += [f"### {kind.__name__}.{name}", "", *_signature(name, method), *_docstring(method)]
    lines += [
        "## Exceptions",
        "",
        "All are imported from `fanin.workers`, or from the module that is named. `fanin` itself has three of them:",
        "`CollectiveError`, `AbortedError` and `JoinError`. A script that catches `CollectiveError` catches all.",
        "",
    ]
    rows = []
    waiting: list[type[BaseException]] = [CollectiveError]
    while waiting:
        error = waiting.pop(0)
        waiting += error.__subclasses__()
        summary = (inspect.getdoc(error) or "").partition("\n\n")[0]
        place = "fanin.workers" if hasattr(api, error.__name__) else error.__module__
        if not error.__name__.startswith("_"):
            rows.append(
                (_code(error.__name__), _code(error.__base__.__name__), _code(place), _cell(_prose(summary)))
            )
    assert any(JoinError.__name__ in row[0] for row in rows)
    return "\n".join([*lines, *_table(("exception", "is a", "module", "meaning"), rows)])


# -- job service ---------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"((?:^//[^\n]*\n)*)^(service|message|enum) (\w+) \{(?:\}|\n(.*?)^\})", re.M | re.S)


def job_service() -> str:
    """Return the service and the messages of jobs.proto, each with its comment as text."""
    proto = (ROOT / "controller" / "job_service" / "jobs.proto").read_text()
    lines = []
    for comment, kind, name, body in _BLOCK.findall(proto):
        text = " ".join(line.lstrip("/ ") for line in comment.splitlines())
        lines += [
            f"## {name}",
            "",
            _prose(text),
            "",
            "```protobuf",
            f"{kind} {name} {{",
            body.rstrip(),
            "}",
            "```",
            "",
        ]
    return "\n".join(lines)


GENERATORS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "scenario-keys": scenario_keys,
    "python-api": python_api,
    "job-service": job_service,
}
