"""Compilation of C into shared libraries with the system's compiler, kept in a cache by content.

The C may come from a stranger's program. Therefore the compiler has limits of time, memory and output, a separate
environment and, where that is permitted, no network. Libraries are loaded only from a folder that nobody else can
write to: cache.py.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import subprocess
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
NATIVE = ("-march=native", "-mcpu=native")  # it depends on the compiler which of them means this processor
# Bytes of stack for one function: a packet is handled about ten calls deep, and a thread has 8 MiB.
MAX_FRAME = 256 << 10
FRAME = (
    (f"-Werror=frame-larger-than={MAX_FRAME}",),  # gcc
    (f"-Wframe-larger-than={MAX_FRAME}", "-Werror=frame-larger-than"),  # clang
)

MAX_MEMORY = 4 << 30  # bytes of address space for each of the compiler's processes
MAX_OUTPUT = 256 << 20  # bytes of each file
_MAX_SECONDS = 600  # processor time of each process; the limit of elapsed time is twice that
_MAX_MESSAGE = 2000  # characters kept of the compiler's output: gRPC's clients take at most 8 KB of metadata
_BUILD = """
built=$1 library=$2; shift 2
ulimit -c 0; ulimit -t "$SECONDS_LIMIT" || :; ulimit -v "$MEMORY_LIMIT" || :; ulimit -f "$OUTPUT_LIMIT" || :
mkdir -p "$TMPDIR" && "$@" && mv -f "$built" "$library"
status=$?
rm -rf "$TMPDIR" "$built"
exit $status
"""
_SIGNALS = 128  # above this, the shell's exit status means that a signal ended the command
_LIMIT_REACHED = re.compile(
    r"limit exceeded|out of memory|memory exhausted|annot allocate memory|bad_alloc|failed to map|signal terminated",
    re.IGNORECASE,
)
_log = logging.getLogger(__name__)


class ToolchainError(Exception):
    """No usable C compiler, or C that it rejects; the message explains how to fix it."""


class NoCompilerError(ToolchainError):
    """No C compiler on this machine."""


class CompileLimitError(ToolchainError):
    """A program whose compilation was stopped because it needs too much time, memory or disk."""


def compile_text(kind: str, content: bytes, text: Callable[[], str], include: Path, *options: str) -> Path:
    """Return the library compiled from generated C, compiling it only if it is not in the cache.

    The C is kept next to the library for anyone who wants to read it.

    Args:
        kind: The beginning of the library's file name.
        content: Everything that the C depends on; it identifies the library in the cache.
        text: Returns the C; it is called only when the library has to be compiled.
        include: The folder of its headers.
        options: Further options for the compiler.

    Returns:
        The path of the library.

    Raises:
        ToolchainError: If it cannot be compiled, or the cache cannot be used.
    """

    def source(library: Path) -> list[Path]:
        path = library.with_suffix(".c")
        path.write_text(text(), encoding="utf-8")
        return [path]

    return _library(kind, content, source, include, *options)


def compile_folder(folder: Path, *options: str, any_processor: bool = False) -> Path:
    """Return the library compiled from all C files below a folder, which may include its own headers and shared.h.

    Args:
        folder: The folder with the C files and headers.
        options: Further options for the compiler.
        any_processor: Compile for every processor of this architecture; the C then selects at run time which further
            instructions it uses.

    Returns:
        The path of the library.

    Raises:
        ToolchainError: If it cannot be compiled, or the cache cannot be used.
    """
    sources = sorted(folder.rglob("*.c"))
    content = b"".join(path.read_bytes() for path in (*sources, *sorted(folder.rglob("*.h"))))
    return _library(folder.name, content, lambda _: sources, INCLUDE, *options, any_processor=any_processor)


def _flags(any_processor: bool) -> tuple[str, ...]:
    """Return the options of every compilation; $P4SWITCH_CFLAGS adds to them (a sanitizer, for example)."""
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
    """Return the library made from this content with this compiler on this processor."""
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
    """Compile next to the library, and move the result into place: an interrupted compilation leaves no library.

    If this process is killed, the compiler keeps the lock and finishes, so that the next process finds the library.
    """
    import tempfile  # not above: most processes find everything in the cache

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
    """Return the limit of processor time for a compilation, which slow machines can raise."""
    given = os.environ.get("P4SWITCH_COMPILE_SECONDS", "")
    if given and not (given.isdecimal() and int(given)):
        raise ToolchainError(f"$P4SWITCH_COMPILE_SECONDS is {given!r}, not a number of seconds")
    return int(given or _MAX_SECONDS)


def _environment() -> dict[str, str]:
    """Return the compiler's environment; it has none of our include paths or preloaded libraries."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


@cache
def _without_network() -> tuple[str, ...]:
    """Return the command that runs another one without network interfaces; empty where that is not permitted."""
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
    """Return the path, size and modification time of the compiler; after an update, everything is compiled again."""
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
    """Find out which options of NATIVE and FRAME the compiler accepts here.

    Returns:
        The accepted options, and the lines of the compiler's output that show its version and features.
    """
    for options in product((*NATIVE, None), FRAME):
        chosen = tuple(filter(None, (options[0], *options[1])))
        # -Werror: without it, clang only warns about an option that it does not know.
        command = [_compiler()[0], *chosen, *("-Werror", "-v", "-S", "-x", "c", "-o", os.devnull, os.devnull)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=_environment(), cwd="/", check=False
        )
        if done.returncode == 0:
            telling = [line for line in done.stderr.splitlines() if re.search("version|cc1", line)]
            return chosen, "\n".join(telling)
    raise ToolchainError(f"{' '.join(command)} failed:\n{done.stderr[-_MAX_MESSAGE:].strip()}")


def compiler_version() -> str:
    """Return the first line of what the compiler prints for --version."""
    said = subprocess.run([_compiler()[0], "--version"], capture_output=True, text=True, check=False)
    return said.stdout.partition("\n")[0]


@cache
def _processor() -> tuple[str, ...]:
    """Return what -march=native depends on, as several machines may share a cache; read from the first processor."""
    try:
        first = CPUINFO.read_text().strip().partition("\n\n")[0]
    except OSError:
        return ()
    return tuple(line for line in first.splitlines() if line.startswith(PROCESSOR))
