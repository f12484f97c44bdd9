"""Compiles C with the system's compiler into shared libraries, and keeps them in a cache by content."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

PACKAGE = Path(__file__).parent
RUNTIME = PACKAGE / "runtime"
TRANSLATION = (
    "codegen/*.py",
    "reader/*.py",
    "entries.py",
    "expressions.py",
    "keys.py",
    "primitives.py",
    "program.py",
    "words.py",
)  # what decides how a program is translated
_BUILD = 'built=$1 library=$2; shift 2; "$@" && mv -f "$built" "$library"'
CPUINFO = Path("/proc/cpuinfo")
PROCESSOR = (
    "vendor_id",
    "cpu family",
    "model\t",
    "flags",
    "Features",
    "CPU implementer",
    "CPU part",
    "CPU variant",
)
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fPIC", "-shared", "-pthread")


class ToolchainError(Exception):
    """There is no usable C compiler, or it refused generated code; the message says how to mend it."""


def compile_program(config: bytes, translate: Callable[[], str], *, traced: bool = False) -> Path:
    """The library of a program (BMv2 JSON); `translate` gives its C if it has not been compiled before.

    The C is kept beside the library, for whoever wants to read it.
    """
    key = hashlib.sha256(config)
    for path in sorted(path for pattern in TRANSLATION for path in PACKAGE.glob(pattern)):
        key.update(path.read_bytes())
    library = _place("traced" if traced else "program", key.digest())
    with _only_one_compiles(library) as lock:
        if not library.exists():
            source = library.with_suffix(".c")
            source.write_text(translate())
            _compile(library, (source,), lock)
    return library


@cache
def compile_folder(folder: Path = RUNTIME) -> Path:
    """The library of all C in a folder, which may include its own headers and the runtime's."""
    sources = tuple(sorted(folder.glob("*.c")))
    key = hashlib.sha256(b"".join(path.read_bytes() for path in (*sources, *sorted(folder.glob("*.h")))))
    library = _place(folder.name, key.digest())
    with _only_one_compiles(library) as lock:
        if not library.exists():
            _compile(library, sources, lock)
    return library


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/fanin`, usually ~/.cache/fanin."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fanin"


def _flags() -> tuple[str, ...]:
    """How everything is compiled; $P4SWITCH_CFLAGS adds to it (a sanitizer, say)."""
    return (*FLAGS, *os.environ.get("P4SWITCH_CFLAGS", "").split())


def _place(kind: str, content: bytes) -> Path:
    """Where a library made of this content, by this compiler, for this processor is kept."""
    key = hashlib.sha256(content + repr((_compiler(), _processor(), _flags())).encode())
    for path in sorted(RUNTIME.glob("*.h")):
        key.update(path.read_bytes())
    return cache_directory() / f"{kind}-{key.hexdigest()[:32]}.so"


@contextmanager
def _only_one_compiles(library: Path) -> Iterator[IO[str]]:
    """The switches of a network start together and want the same library: one makes it, the others wait."""
    library.parent.mkdir(parents=True, exist_ok=True)
    with library.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # given back when everybody has closed the file
        yield lock


def _compile(library: Path, sources: tuple[Path, ...], lock: IO[str]) -> None:
    """Compiles beside the library and moves it into place: a compilation cut short leaves no library.

    If this process is killed, the compiler goes on with the lock, and the library is there for the next one.
    """
    built = library.with_suffix(".building")
    command = [_compiler()[0], *_flags(), "-I", str(RUNTIME), "-o", str(built), *map(str, sources)]
    done = subprocess.run(
        ["sh", "-c", _BUILD, "sh", built, library, *command],
        pass_fds=[lock.fileno()],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ToolchainError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


@cache
def _compiler() -> tuple[str, int, int]:
    """Path, size and time of the compiler: a new one compiles anew."""
    name = os.environ.get("CC", "cc")
    path = shutil.which(name)
    if path is None:
        raise ToolchainError(
            f"no C compiler ({name}) found; p4switch translates P4 programs to C and needs one: "
            "install gcc or clang (Debian: apt-get install gcc libc6-dev), or name yours in $CC"
        )
    status = Path(path).resolve().stat()
    return path, status.st_size, status.st_mtime_ns


def compiler_version() -> str:
    """What the compiler says of itself."""
    said = subprocess.run([_compiler()[0], "--version"], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0]


@cache
def _processor() -> tuple[str, ...]:
    """What -march=native depends on, in a cache that several machines may share; of the first processor."""
    try:
        first = CPUINFO.read_text().strip().partition("\n\n")[0]
    except OSError:
        return ()
    return tuple(line for line in first.splitlines() if line.startswith(PROCESSOR))
