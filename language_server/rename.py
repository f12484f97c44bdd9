"""Renaming: the edits that give a declaration another name, or the reason why that would change the program."""

from __future__ import annotations

import re
from pathlib import Path

from fanin.language_server.programs import Found, Place, Programs, of_compiler
from fanin.p4compiler.compile import Analysis, analyze
from fanin.p4compiler.parse.expressions import RESERVED
from fanin.p4compiler.parse.lex import NAME, tokenize
from fanin.p4compiler.parse.preprocess import Macro
from fanin.p4compiler.source import CompileError, SourceFile

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEPT = ("main", "start", "accept", "reject")


class RenameError(Exception):
    """Reason why something cannot be renamed."""


def check_renamable(found: Found | None) -> Found:
    """Return the name at a place if it can have another name.

    Raises:
        RenameError: If it cannot.
    """
    if found is None:
        raise RenameError("there is no name that the program declares")
    name = found.definition.name
    declared = found.snapshot.analysis.index.paths.get(found.definition.span.file.path)
    if declared is None or of_compiler(declared):
        raise RenameError(
            f"'{name}' belongs to the architecture, and the control plane knows it by this name"
        )
    if isinstance(found.definition.symbol, Macro):
        raise RenameError(f"'{name}' is a macro: its uses in other macros cannot be found")
    if name in _KEPT:
        raise RenameError(f"'{name}' has this name in every program")
    return found


def rename(programs: Programs, found: Found | None, new: str) -> list[Place]:
    """Return the places where a name is to be replaced by another.

    The program is analysed with the new name: every name in it must mean the same as before.

    Raises:
        RenameError: If the new name is no name, is taken, or the program would change.
    """
    found = check_renamable(found)
    old = found.definition.name
    if not _NAME.fullmatch(new) or new in RESERVED or new in _KEPT:
        raise RenameError(f"'{new}' is not a name that a program can give")
    if new == old:
        return []
    places = programs.uses(found)
    roots = {root for place in places for root in programs.roots(place.path)}
    _refuse_unknown(programs, roots, old, places)
    texts = dict(programs.buffers)
    for path in {place.path for place in places}:
        texts[path] = _replaced(programs.text(path), [p for p in places if p.path == path], new)
    for root in sorted(roots):
        before, after = programs.snapshot(root).analysis, analyze(root, texts=texts)
        if before.errors:
            raise RenameError(f"{root.name} has errors: correct them first")
        if after.errors:
            raise RenameError(f"with the name '{new}', the program is wrong: {after.errors[0].message}")
        if _meanings(before, old, new) != _meanings(after, old, new):
            raise RenameError(f"'{new}' has another meaning where '{old}' is used")
    return places


def _replaced(text: str, places: list[Place], new: str) -> str:
    lines = text.split("\n")
    for place in sorted(places, key=lambda p: p.span[1:3], reverse=True):
        span = place.span
        line = lines[span.line - 1]
        lines[span.line - 1] = line[: span.column] + new + line[span.end_column :]
    return "\n".join(lines)


def _meanings(analysis: Analysis, old: str, new: str) -> list[tuple[str, int, int]]:
    """Return all definitions with their lines and the number of their uses, whichever of two names they have."""
    return [(new if d.name == old else d.name, d.span.line, len(d.uses)) for d in analysis.index.definitions]


def _refuse_unknown(programs: Programs, roots: set[Path], old: str, places: list[Place]) -> None:
    """Raise an error if the name also stands where nothing is known about it, such as in a macro."""
    known = {(p.path, *p.span[1:3]) for p in places}
    for root in roots:
        index = programs.snapshot(root).analysis.index
        for path in {p for p in index.paths.values() if not of_compiler(p)}:
            try:
                tokens = tokenize(SourceFile(str(path), tuple(programs.text(path).split("\n"))))
            except CompileError:
                continue
            for token in (t for t in tokens if t.kind == NAME and t.text == old):
                line, column = token.span[1:3]
                if (path, line, column) not in known and index.at(path, line, column) is None:
                    where = f"{path.name}:{line}:{column + 1}"
                    raise RenameError(
                        f"'{old}' is also at {where}, in a macro or in code that #if leaves out"
                    )
