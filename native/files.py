"""Files: read only if they have an end, and written whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name `path` in an OSError of the system that names no file, as where the disk is full.

    Raises:
        OSError: its filename is `path`.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def read_bytes(path: Path, most: int = 256 << 20) -> bytes:
    """Return the contents of a file. Devices such as /dev/zero have no end, and would fill the memory.

    Args:
        path: The file.
        most: Its most bytes.

    Raises:
        OSError: If it cannot be read or has more bytes; its filename is `path`.
    """
    with naming(path), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a file to write, which takes the place of `path` once it is whole.

    After a failure `path` is as it was before, and the other file is gone.

    Raises:
        OSError: its filename is `path`, if it cannot be written.
    """
    new = path.with_name(f".new-{path.name}")
    try:
        with naming(path):
            yield new
            new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def write_json(document: Any, path: Path, indent: int = 2) -> None:
    """Write a document to `path`, which stays as it is if that fails.

    Raises:
        OSError: its filename is `path`, if it cannot be written.
    """
    with replacing(path) as new:
        new.write_text(json.dumps(document, indent=indent) + "\n")
