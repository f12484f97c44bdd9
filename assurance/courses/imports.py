"""The imports of courses' Python files, tried in the Python that `fanin course` has made.

`python -m fanin.assurance.courses.imports COURSE CHECKOUT…` prints those that fail as a table in Markdown. COURSE is a
folder that `fanin course` has made, and each CHECKOUT a repository. Modules of the repository itself are left out.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

# Python 2, which ast cannot parse.
_IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+import\s+(\w+|\*)|import\s+([\w., ]+))", re.MULTILINE)
# Reads lines of JSON with a module and a name in it or "", and answers each with what the import raises.
_TRY = """
import contextlib, importlib, io, json, sys
for line in sys.stdin:
    name, member = json.loads(line)
    error = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            module = importlib.import_module(name)
            if member not in ("", "*") and not hasattr(module, member):
                importlib.import_module(f"{name}.{member}")
    except BaseException as caught:
        error = f"{type(caught).__name__}: {caught}"
    print(json.dumps(error), flush=True)
"""

Import = tuple[str, str]
"""A module, and a name in it or ""."""


def imports(text: str) -> Iterator[Import]:
    """Yield the imports of a Python file, of Python 2 or 3; relative ones are left out."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        for module, member, modules in _IMPORT.findall(text):
            yield from [(module, member)] if module else _plain(modules.split(","))
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from _plain(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def _plain(modules: Iterable[str]) -> Iterator[Import]:
    return ((module.strip().split(" ")[0], "") for module in modules)


def foreign_imports(checkout: Path) -> Iterator[tuple[Import, Path]]:
    """Yield each import of a checkout's scripts, with its file, unless it may be of a module in the checkout."""
    own = {path.stem for path in checkout.rglob("*.py")}
    own |= {path.parent.name for path in checkout.rglob("__init__.py")}
    for path in sorted(checkout.rglob("*")):
        if path.is_file() and not path.is_symlink() and _is_python(path):
            for wanted in imports(path.read_text(errors="replace")):
                if wanted[0].split(".")[0] not in own:
                    yield wanted, path


def _is_python(path: Path) -> bool:
    if path.suffix == ".py":
        return True
    with path.open("rb") as file:
        first = file.readline(80)
    return first.startswith(b"#!") and b"python" in first


def failures(python: Path, wanted: Sequence[Import]) -> list[str]:
    """Return what each import raises in an interpreter, or ""."""
    lines = "".join(json.dumps(each) + "\n" for each in wanted)
    done = subprocess.run([python, "-c", _TRY], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Print the imports that fail."""
    course, *checkouts = map(Path, sys.argv[1:])
    files = defaultdict(set)
    for checkout in checkouts:
        for wanted, path in foreign_imports(checkout):
            files[wanted].add(path.relative_to(checkout.parent))
    found = failures(course / "bin/python3", list(files))
    print("| import | error | files |\n|---|---|---|")
    for (module, member), error in sorted(zip(files, found, strict=True)):
        if error:
            there = sorted(files[module, member])
            shown = f"`{there[0]}`" + (f" and {len(there) - 1} more" if there[1:] else "")
            print(f"| `{f'{module}.{member}'.rstrip('.')}` | {error} | {shown} |")
    print(f"\n{len(files)} imports, {sum(map(bool, found))} fail")


if __name__ == "__main__":
    main()
