"""The programs of a workspace: which files belong together, what the editor has not saved, and their analyses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fanin.language_server.places import Moves
from fanin.p4compiler.compile import INCLUDE, Analysis, analyze
from fanin.p4compiler.index import Definition
from fanin.p4compiler.source import SourceFile, Span

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_MAIN = re.compile(r"\)\s*main\s*;")
_MOST_FILES = 2000  # of a workspace, so that a home directory opened by mistake does not stop the editor
_MOST_FOLDERS = 5000
_MOST_PROGRAMS = 50
_SKIPPED = ("node_modules", "__pycache__")

NOWHERE = SourceFile("", ())  # of spans that are compared

Stamp = str | tuple[int, int] | None  # of a file: the text in the editor, or what the file system says


@dataclass(frozen=True, slots=True)
class _Look:
    """Result of a glance at a file: which files it includes, and whether it ends a program."""

    stamp: Stamp
    includes: tuple[str, ...]
    has_main: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Range in a file, in lines from 1 and characters from 0 of its text of now."""

    path: Path
    span: Span


@dataclass(slots=True, eq=False)
class Snapshot:
    """Analysis of a program, with the texts that it is about."""

    analysis: Analysis
    texts: dict[Path, str]
    stamps: dict[Path, Stamp]


@dataclass(frozen=True, slots=True)
class Found:
    """Name at a place, and what it means."""

    place: Place
    definition: Definition
    snapshot: Snapshot


class Programs:
    """All programs that an editor works on."""

    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.buffers: dict[Path, str] = {}  # the texts of open files
        self._latest: dict[Path, Snapshot] = {}
        self._good: dict[Path, Snapshot] = {}  # without syntax errors
        self._files: list[Path] | None = None
        self._looks: dict[Path, _Look] = {}

    # Files

    def look_again(self) -> None:
        """Forget which files there are: some have been created, opened, closed or deleted."""
        self._files = None

    def text(self, path: Path) -> str:
        """Return the text of a file as the editor has it, or as it is on the disk; empty if there is none."""
        if path in self.buffers:
            return self.buffers[path]
        try:
            return path.read_text(encoding="utf-8", errors="replace")
        except (OSError, ValueError):
            return ""

    def line(self, path: Path, number: int) -> str:
        """Return a line of a file, counted from 1."""
        lines = self.text(path).split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def files(self) -> list[Path]:
        """Return the P4 files of the workspace, and those that are open."""
        if self._files is not None:
            return self._files
        found = set(self.buffers)
        for folder in {*self.folders, *(path.parent for path in self.buffers)}:
            found.update(_p4_files(folder, deep=folder in self.folders))
            if len(found) > _MOST_FILES:
                break
        self._files = sorted(found)
        return self._files

    def _included(self, path: Path) -> Iterator[Path]:
        """Yield the files that a file includes by their names in quotes."""
        for name in self._look(path).includes:
            with suppress(OSError, ValueError):
                yield (path.parent / name).resolve()

    def _look(self, path: Path) -> _Look:
        stamp = self._stamp(path)
        known = self._looks.get(path)
        if known is None or known.stamp != stamp:
            text = self.text(path)
            known = self._looks[path] = _Look(stamp, tuple(_INCLUDE.findall(text)), bool(_MAIN.search(text)))
        return known

    def roots(self, path: Path) -> list[Path]:
        """Return the programs that a file belongs to, the likeliest first."""
        including: dict[Path, list[Path]] = {}
        for file in self.files():
            for included in self._included(file):
                including.setdefault(included, []).append(file)
        seen, todo, roots = {path}, [path], list[Path]()
        while todo:
            file = todo.pop(0)
            above = [other for other in including.get(file, []) if other not in seen]
            if not including.get(file) or self._look(file).has_main:
                roots.append(file)
            seen.update(above)
            todo += above
        return sorted(
            roots or [path], key=lambda r: (r != path, r not in self.buffers, r.parent != path.parent, str(r))
        )

    def all_roots(self) -> list[Path]:
        """Return the programs of the workspace; not all of them, if there are many."""
        included = {other for file in self.files() for other in self._included(file)}
        return [f for f in self.files() if f not in included or self._look(f).has_main][:_MOST_PROGRAMS]

    # Analyses

    def snapshot(self, root: Path) -> Snapshot:
        """Return an analysis of a program as it is now."""
        latest = self._latest.get(root)
        if latest is not None and all(self._stamp(p) == stamp for p, stamp in latest.stamps.items()):
            return latest
        analysis = analyze(root, texts=self.buffers)
        paths = {root, *analysis.index.paths.values()}
        if analysis.tree is None or analysis.errors:
            paths |= set(self.files())  # a file that is missing may appear
        made = Snapshot(
            analysis,
            {p: self.buffers[p] for p in paths if p in self.buffers},
            {p: self._stamp(p) for p in paths},
        )
        self._latest[root] = made
        if analysis.sound:
            self._good[root] = made
        return made

    def _stamp(self, path: Path) -> Stamp:
        if path in self.buffers:
            return self.buffers[path]
        try:
            found = path.stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size

    def snapshots(self, path: Path) -> list[Snapshot]:
        """Return what is known about a file: from its text of now, then from before its last syntax error."""
        root = self.roots(path)[0]
        latest, good = self.snapshot(root), self._good.get(root)
        return [latest] if good is None or good is latest else [latest, good]

    def moves(self, snapshot: Snapshot, path: Path) -> Moves:
        """Return where the lines of a file are since a snapshot."""
        now = self.text(path)
        return Moves.between(snapshot.texts.get(path, now), now)

    def place(self, snapshot: Snapshot, span: Span) -> Place | None:
        """Return a span of a snapshot in the text of now, or None if it cannot be said where that is."""
        path = snapshot.analysis.index.paths.get(span.file.path)
        if path is None or span.expansion is not None:
            return None
        moved = self.moves(snapshot, path).span(span)
        return None if moved is None else Place(path, moved)

    def find(self, path: Path, line: int, column: int) -> Found | None:
        """Return the name at a place of now, and what it means."""
        for snapshot in self.snapshots(path):
            old = self.moves(snapshot, path).to_old(line)
            found = snapshot.analysis.index.at(path, old, column) if old is not None else None
            place = self.place(snapshot, found[0]) if found is not None else None
            if found is not None and place is not None:
                return Found(place, found[1], snapshot)
        return None

    def uses(self, found: Found) -> list[Place]:
        """Return all places that mean the same as a name, in all programs that its declaration belongs to."""
        declared = self.place(found.snapshot, found.definition.span)
        places = self._places(found.snapshot, found.definition)
        if declared is not None and not of_compiler(declared.path):
            for root in self.roots(declared.path):
                snapshot = self.snapshot(root)
                other = snapshot.analysis.index.at(declared.path, *declared.span[1:3])
                if other is not None and snapshot is not found.snapshot:
                    places |= self._places(snapshot, other[1])
        return sorted(places, key=lambda p: (str(p.path), p.span[1:3]))

    def _places(self, snapshot: Snapshot, definition: Definition) -> set[Place]:
        found = (self.place(snapshot, span) for span in definition.uses)
        return {Place(p.path, p.span._replace(file=NOWHERE)) for p in found if p is not None}


def of_compiler(path: Path) -> bool:
    """Return whether a file is one of the compiler's own, such as v1model.p4."""
    return path.is_relative_to(INCLUDE.resolve())


def _p4_files(folder: Path, deep: bool) -> Iterator[Path]:
    """Yield the P4 files in a folder, and below it unless there are too many."""
    for count, (above, folders, names) in enumerate(os.walk(folder)):
        folders[:] = sorted(f for f in folders if deep and f[0] != "." and f not in _SKIPPED)
        yield from (Path(above, name).resolve() for name in names if name.endswith(".p4"))
        if count > _MOST_FOLDERS:
            return
