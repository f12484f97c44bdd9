"""Files of traces of any format, compressed by gzip or not."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import lru_cache
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from fanin.experiments.workloads.chakra import ChakraFile
from fanin.experiments.workloads.kineto import read_kineto
from fanin.experiments.workloads.nccl_log import NcclLog, is_nccl_log, nccl_traces
from fanin.experiments.workloads.nccl_tests import Calibration, is_nccl_tests, read_nccl_tests
from fanin.experiments.workloads.trace import RankTrace, Trace, TraceError, joined

_Made = TypeVar("_Made")

_GZIP = b"\x1f\x8b"
_BEGINNING = 1 << 16  # bytes that decide about the format
_RANK = re.compile(r"(\d+)(?:\.\w+)*$")  # the last number of a file's name: its rank


def load_trace(paths: Sequence[Path]) -> Trace:
    """Read the trace of a training from files of PyTorch's profiler, Chakra or NCCL.

    Raises:
        TraceError: If a file cannot be read or is of no known format, or if they do not fit together.
    """
    return _load(tuple((path, _changed(path)) for path in paths))


def load_calibration(path: Path, ranks: int | None = None) -> Calibration | None:
    """Read the output of nccl-tests; None if the file is something else.

    Raises:
        TraceError: If the file cannot be read.
    """

    def read(data: BinaryIO) -> Calibration | None:
        beginning = _text(_peek(data))
        if not is_nccl_tests(beginning):
            return None
        with TextIOWrapper(data, encoding="utf-8", errors="replace") as lines:
            return read_nccl_tests(lines, str(path), ranks)

    return _opened(path, read)


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None


@lru_cache(maxsize=2)
def _load(files: tuple[tuple[Path, int], ...]) -> Trace:
    traces: list[RankTrace] = []
    chakra: list[ChakraFile] = []
    logs: list[NcclLog] = []
    for place, (path, _) in enumerate(files):

        def read(data: BinaryIO, path: Path = path, place: int = place) -> None:
            beginning = _peek(data)
            text = _text(beginning)
            match = _RANK.search(path.name.removesuffix(".gz").rpartition(".")[0] or path.name)
            rank = int(match[1]) if match and len(match[1]) < 6 else place
            if not beginning:
                raise TraceError(f"{path}: is empty")
            if text.lstrip()[:1] in ("{", "["):
                with TextIOWrapper(data, encoding="utf-8") as lines:
                    traces.append(read_kineto(lines, str(path), rank))
            elif is_nccl_log(text):
                with TextIOWrapper(data, encoding="utf-8", errors="replace") as lines:
                    logs.append(NcclLog(lines, str(path)))
            elif is_nccl_tests(text):
                raise TraceError(
                    f"{path}: is an output of nccl-tests, which has no training; give it to 'fanin import'"
                )
            else:
                chakra.append(ChakraFile(data, str(path), rank))

        _opened(path, read)
    if chakra:
        by_rank = {one.rank: one for one in chakra}
        world = 1 + max(by_rank)
        if len(by_rank) < world or len(by_rank) < len(chakra):
            found = ", ".join(str(one.rank) for one in chakra)
            missing = next((rank for rank in range(world) if rank not in by_rank), None)
            problem = "a rank has two files" if missing is None else f"the file of rank {missing} is missing"
            raise TraceError(
                f"{chakra[0].file}: {problem}; files of Chakra are named after their ranks, such as trace.0.et, and "
                f"these are of ranks {found}"
            )
        names = sorted({group for one in chakra for group in one.groups})
        groups = {name: tuple(sorted(one.rank for one in chakra if name in one.groups)) for name in names}
        traces += [one.trace(world, groups) for one in chakra]
    return joined([*traces, *nccl_traces(logs)])


def _opened(path: Path, read: Callable[[BinaryIO], _Made]) -> _Made:
    """Open a file, decompressed if necessary, and return what `read` makes of it."""
    try:
        with ExitStack() as stack:
            plain = stack.enter_context(path.open("rb"))
            if plain.peek(2)[:2] != _GZIP:
                return read(plain)
            return read(cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=plain))))
    except EOFError:
        raise TraceError(f"{path}: ends in the middle: the gzip file is truncated") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"{path}: is damaged: {error}") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None


def _peek(data: BinaryIO) -> bytes:
    """Return the beginning of a file, and go back to it."""
    found = data.read(_BEGINNING)
    data.seek(0)
    return found


def _text(data: bytes) -> str:
    return data.decode("utf-8", errors="replace")
