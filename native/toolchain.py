"""Compiles C with the system's compiler into shared libraries, and keeps them in a cache by content.

What is compiled may be a stranger's program: the compiler has limits of time, memory and output, an environment of its
own and, where that is permitted, no network. What is loaded comes from a folder that nobody else can write to:
cache.py.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import IO

from fanin.native.cache import CacheError, cache_directory, locked, make_room

INCLUDE = Path(__file__).parent  # shared.h
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
FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-pthread")
NATIVE = ("-march=native", "-mcpu=native")  # which of them means this processor depends on the compiler
# Bytes of a function's stack: about ten functions are on the way of a packet, and a thread has 8 MiB.
MAX_FRAME = 256 << 10
FRAME = (
    (f"-Werror=frame-larger-than={MAX_FRAME}",),  # gcc
    (f"-Wframe-larger-than={MAX_FRAME}", "-Werror=frame-larger-than"),  # clang
)

MAX_MEMORY = 4 << 30  # bytes of address space, of each of the compiler's processes
MAX_OUTPUT = 256 << 20  # bytes of each file
_MAX_SECONDS = 600  # of processor time, of each process; twice that by the clock
_MAX_MESSAGE = 2000  # characters of what the compiler says: gRPC's clients take 8 KB of everything
_BUILD = """
built=$1 library=$2; shift 2
ulimit -c 0; ulimit -t "$SECONDS_LIMIT" || :; ulimit -v "$MEMORY_LIMIT" || :; ulimit -f "$OUTPUT_LIMIT" || :
mkdir -p "$TMPDIR" && "$@" && mv -f "$built" "$library"
status=$?
rm -rf "$TMPDIR" "$built"
exit $status
"""
_SIGNALS = 128  # of the shell: the status of what a signal has ended
_LIMIT_REACHED = re.compile(
    r"limit exceeded|out of memory|memory exhausted|annot allocate memory|bad_alloc|failed to map|signal terminated",
    re.IGNORECASE,
)
_log = logging.getLogger(__name__)


class ToolchainError(Exception):
    """There is no usable C compiler, or it refused what it was given; the message says how to fix it."""


class NoCompilerError(ToolchainError):
    """There is no C compiler."""


class CompileLimitError(ToolchainError):
    """The compiler was stopped: what it was given would have taken too much time, memory or disk."""


def compile_text(kind: str, content: bytes, text: Callable[[], str], include: Path) -> Path:
    """The library of C that `text` gives if it is not there yet; `content`: what that C depends on.

    `include`: the folder of its headers. The C is kept beside the library, for whoever wants to read it.
    """

    def source(library: Path) -> list[Path]:
        path = library.with_suffix(".c")
        path.write_text(text(), encoding="utf-8")
        return [path]

    return _library(kind, content, source, include)


def compile_folder(folder: Path, *options: str, any_processor: bool = False) -> Path:
    """The library of all C in a folder and the folders in it, which may include its own headers and shared.h.

    any_processor: for all of this architecture, and it finds by itself what else the one has that it runs on.
    """
    sources = sorted(folder.rglob("*.c"))
    content = b"".join(path.read_bytes() for path in (*sources, *sorted(folder.rglob("*.h"))))
    return _library(folder.name, content, lambda _: sources, INCLUDE, *options, any_processor=any_processor)


def _flags(any_processor: bool) -> tuple[str, ...]:
    """How everything is compiled; $P4SWITCH_CFLAGS adds to it (a sanitizer, say)."""
    accepted = (each for each in _accepted()[0] if not (any_processor and each in NATIVE))
    return (*FLAGS, *accepted, *os.environ.get("P4SWITCH_CFLAGS", "").split())


def _library(
    kind: str,
    content: bytes,
    sources: Callable[[Path], list[Path]],
    include: Path,
    *options: str,
    any_processor: bool = False,
) -> Path:
    """The library made of this content, by this compiler, on this processor."""
    flags = _flags(any_processor)
    key = hashlib.sha256(content + repr((_compiler(), _accepted(), _processor(), flags, options)).encode())
    for path in sorted(include.glob("*.h")):
        key.update(path.read_bytes())
    try:
        library = cache_directory() / f"{kind}-{key.hexdigest()[:32]}.so"
        # The switches of a network start together and want the same library.
        with locked(library) as lock:
            if not library.exists():
                given = [*flags, "-I", str(include), *map(str, sources(library)), *options]
                _compile(library, given, lock)
                make_room(library.parent)
    except CacheError as error:
        raise ToolchainError(str(error)) from error
    return library


def _compile(library: Path, arguments: list[str], lock: IO[str]) -> None:
    """Compiles beside the library and moves it into place: a compilation cut short leaves no library.

    If this process is killed, the compiler goes on with the lock, and the library is there for the next one.
    """
    built, temporary = library.with_suffix(".building"), library.with_suffix(".temporary")
    command = [_compiler()[0], "-o", str(built), *arguments]
    seconds = _seconds()
    environment = {
        **_environment(),
        "TMPDIR": str(temporary),
        "SECONDS_LIMIT": str(seconds),
        "MEMORY_LIMIT": str(MAX_MEMORY >> 10),
        "OUTPUT_LIMIT": str(MAX_OUTPUT >> 9),
    }
    with tempfile.TemporaryFile() as said:
        building = subprocess.Popen(
            [*_without_network(), "sh", "-c", _BUILD, "sh", built, library, *command],
            pass_fds=[lock.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
        try:
            status: int | None = building.wait(2 * seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            if building.returncode is None:  # too long, or interrupted
                os.killpg(building.pid, signal.SIGKILL)
                building.wait()
                shutil.rmtree(temporary, ignore_errors=True)
                built.unlink(missing_ok=True)
        said.seek(0)
        message = said.read(_MAX_MESSAGE).decode(errors="replace").strip()
    if status is None or (status and _LIMIT_REACHED.search(message)) or status > _SIGNALS:
        raise CompileLimitError(
            f"the C compiler was stopped: a program may take {seconds} s of processor time, {MAX_MEMORY >> 20} MiB of "
            f"memory and {MAX_OUTPUT >> 20} MiB of output; make it smaller, or set $P4SWITCH_COMPILE_SECONDS\n{message}"
        )
    if status and "frame-larger-than" in message:
        raise CompileLimitError(
            f"a function of the program may have at most {MAX_FRAME >> 10} KiB of stack: split what it computes into "
            f"several expressions, with variables\n{message}"
        )
    if status:
        raise ToolchainError(f"{' '.join(command)} failed:\n{message}")


def _seconds() -> int:
    """How long a compilation may take; a slow machine may need more than others."""
    given = os.environ.get("P4SWITCH_COMPILE_SECONDS", "")
    if given and not (given.isdecimal() and int(given)):
        raise ToolchainError(f"$P4SWITCH_COMPILE_SECONDS is {given!r}, not a number of seconds")
    return int(given or _MAX_SECONDS)


def _environment() -> dict[str, str]:
    """All that the compiler knows of ours: no include paths, no libraries to load before others."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


@cache
def _without_network() -> tuple[str, ...]:
    """What runs a command in a network namespace without interfaces; empty where that is not permitted."""
    for way in (("unshare", "-n"), ("unshare", "-rn")):
        try:
            if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
                return way
        except OSError:
            break
    _log.warning("the C compiler runs with the network: unshare is not permitted here")
    return ()


@cache
def _compiler() -> tuple[str, int, int]:
    """Path, size and time of the compiler: a new one compiles anew."""
    name = os.environ.get("CC", "cc")
    path = shutil.which(name)
    if path is None:
        raise NoCompilerError(
            f"no C compiler ({name}) found; programs are compiled when they are first used: "
            "install gcc or clang (Debian: apt-get install gcc libc6-dev), or name yours in $CC"
        )
    status = Path(path).resolve().stat()
    return path, status.st_size, status.st_mtime_ns


@cache
def _accepted() -> tuple[tuple[str, ...], str]:
    """Of NATIVE, if any, and of FRAME what the compiler takes here, and what it makes of them: version, features."""
    for options in product((*NATIVE, None), FRAME):
        chosen = tuple(filter(None, (options[0], *options[1])))
        # -Werror: clang only warns of an option that it does not know.
        command = [_compiler()[0], *chosen, *("-Werror", "-v", "-S", "-x", "c", "-o", os.devnull, os.devnull)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), cwd="/", check=False
        )
        if done.returncode == 0:
            telling = [line for line in done.stderr.splitlines() if re.search("version|cc1", line)]
            return chosen, "\n".join(telling)
    raise ToolchainError(f"{' '.join(command)} failed:\n{done.stderr[-_MAX_MESSAGE:].strip()}")


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
