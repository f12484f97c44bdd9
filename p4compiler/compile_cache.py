"""Compiled programs in the user's cache: while no file of a program changes, it is not compiled again."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from finsy.proto import p4i
from google import protobuf

from fanin.native.cache import CacheError, cache_directory, locked, make_room
from fanin.p4compiler.compiled import Compiled
from fanin.p4compiler.parse.preprocess import Lookups, unchanged
from fanin.p4compiler.source import Diagnostic

_SOURCES = Path(__file__).parent
_DIGEST_BYTES = sha256().digest_size

# What is kept: the files it depends on, the JSON, the P4Info and the warnings.
_Kept = tuple[Lookups, dict[str, Any], bytes, tuple[Diagnostic, ...]]


def compile_once(
    path: str | Path, *, include_dirs: Iterable[str | Path] = (), defines: Mapping[str, str] | None = None
) -> Compiled:
    """What `compile_file` gives, from the user's cache if the program has been compiled before as it is now.

    Without a cache that can be trusted and written, it is compiled.

    Raises:
        CompileError, OSError: see compile_file.
    """
    places = tuple(map(str, include_dirs))
    with ExitStack() as held:
        entry: Path | None = None
        # Not of a pipe: it is never kept, and whoever writes to it may wait for another process that compiles.
        if Path(path).is_file():
            try:
                entry = cache_directory() / f"p4-{_key(path, places, defines or {})}.compiled"
                # Processes that start together want the same program: the first compiles it, the others wait.
                held.enter_context(_locked(entry))
                if (kept := _read(entry)) is not None:
                    return kept
            except (CacheError, OSError):
                entry = None

        # Not above: it takes 0.2 s to load, and who finds the program kept does without.
        from fanin.p4compiler.compile import compile_file

        lookups: Lookups = {}
        compiled = compile_file(path, include_dirs=places, defines=defines, lookups=lookups)
        # Not while somebody writes to a file, and not what came through a pipe.
        if entry is not None and unchanged(lookups):
            with suppress(OSError):
                _write(
                    entry, (lookups, compiled.json, compiled.p4info.SerializeToString(), compiled.warnings)
                )
        return compiled


@contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """`locked`, and the lock is removed if nothing is kept in the end."""
    with locked(entry) as lock:
        try:
            yield
        finally:
            if not entry.exists():
                with suppress(OSError):
                    Path(lock.name).unlink()


def _key(path: str | Path, include_dirs: tuple[str, ...], defines: Mapping[str, str]) -> str:
    """Of all that a result depends on but for the program's files: how it is asked for, and by what it is compiled."""
    # A program whose path is absolute is the same one wherever the process is.
    absolute = all(Path(place).is_absolute() for place in (path, *include_dirs))
    asked = (str(path), include_dirs, sorted(defines.items()), None if absolute else str(Path.cwd()))
    key = sha256(repr((asked, sys.version, protobuf.__version__)).encode())
    for source in sorted(_SOURCES.rglob("*.py")):
        key.update(source.read_bytes())
    return key.hexdigest()[:32]


def _read(entry: Path) -> Compiled | None:
    """What is kept there, if it is whole and no file has changed since."""
    if not entry.is_file():
        return None
    content = entry.read_bytes()
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if sha256(body).digest() != digest:
        return None
    kept: _Kept = pickle.loads(body)  # of a folder to which nobody else can write, as libraries are
    lookups, json, p4info, warnings = kept
    return Compiled(json, p4i.P4Info.FromString(p4info), warnings) if unchanged(lookups) else None


def _write(entry: Path, kept: _Kept) -> None:
    body = pickle.dumps(kept)
    building = entry.with_suffix(".building")
    building.write_bytes(sha256(body).digest() + body)
    building.replace(entry)
    make_room(entry.parent)
