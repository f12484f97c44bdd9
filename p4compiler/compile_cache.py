"""Compiled programs in the user's cache, used again as long as no file of the program changes."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from finsy.proto import p4i
from google import protobuf

from fanin.native.cache import CacheError, cache_directory, locked, make_room
from fanin.p4compiler.compiled import Compiled
from fanin.p4compiler.externs import OUTSIDE
from fanin.p4compiler.parse.preprocess import Lookups, unchanged
from fanin.p4compiler.source import Diagnostic, Span

_SOURCES = Path(__file__).parent
_DIGEST_BYTES = sha256().digest_size

# A cached result: the files it depends on, the JSON, the P4Info, the warnings and the places of parser states.
_Kept = tuple[Lookups, bytes, bytes, tuple[Diagnostic, ...], Mapping[str, tuple[Span, ...]]]


def compile_once(
    path: str | Path, *, include_dirs: Iterable[str | Path] = (), defines: Mapping[str, str] | None = None
) -> Compiled:
    """Compile a program like `compile_file`, or return the result from the user's cache if it is still valid.

    If the cache is not writable or not private to the user, the program is compiled.

    Raises:
        CompileError: As for `compile_file`.
        OSError: As for `compile_file`.
    """
    places = tuple(map(str, include_dirs))
    with ExitStack() as held:
        entry: Path | None = None
        # Pipes are never cached: their writer may wait for another process that compiles.
        if Path(path).is_file():
            try:
                entry = cache_directory() / f"p4-{_key(path, places, defines or {})}.compiled"
                # Processes that start together want the same program: the first compiles it, the others wait.
                held.enter_context(_locked(entry))
                if (kept := _read(entry)) is not None:
                    return kept
            except (CacheError, OSError):
                entry = None

        # Imported here because it takes 0.2 s, which a cache hit saves.
        from fanin.p4compiler.compile import compile_file

        lookups: Lookups = {}
        compiled = compile_file(path, include_dirs=places, defines=defines, lookups=lookups)
        # Do not cache a file that is being written, or that came through a pipe.
        if entry is not None and unchanged(lookups):
            with suppress(OSError):
                p4info = compiled.p4info.SerializeToString()
                _write(entry, (lookups, compiled.config, p4info, compiled.warnings, compiled.states))
        return compiled


@contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """Hold the entry's lock, and remove the lock file if nothing was cached in the end."""
    with locked(entry) as lock:
        try:
            yield
        finally:
            if not entry.exists():
                with suppress(OSError):
                    Path(lock.name).unlink()


def _key(path: str | Path, include_dirs: tuple[str, ...], defines: Mapping[str, str]) -> str:
    """Return a hash of everything but the program's files: the arguments, the compiler and its environment."""
    # A program with an absolute path is the same one in every working directory.
    absolute = all(Path(place).is_absolute() for place in (path, *include_dirs))
    asked = (str(path), include_dirs, sorted(defines.items()), None if absolute else str(Path.cwd()))
    key = sha256(repr((asked, sys.version, protobuf.__version__)).encode())
    for source in sorted((*_SOURCES.rglob("*.py"), *_SOURCES.rglob("*.p4"), *OUTSIDE)):
        key.update(source.read_bytes())
    return key.hexdigest()[:32]


def _read(entry: Path) -> Compiled | None:
    """Return the cached result if it is intact and no file has changed since, else None."""
    if not entry.is_file():
        return None
    content = entry.read_bytes()
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if sha256(body).digest() != digest:
        return None
    kept: _Kept = pickle.loads(body)  # safe: only this user can write to the folder
    lookups, config, p4info, warnings, states = kept
    return Compiled(config, p4i.P4Info.FromString(p4info), warnings, states) if unchanged(lookups) else None


def _write(entry: Path, kept: _Kept) -> None:
    body = pickle.dumps(kept)
    building = entry.with_suffix(".building")
    building.write_bytes(sha256(body).digest() + body)
    building.replace(entry)
    make_room(entry.parent)
