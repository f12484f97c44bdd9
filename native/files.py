"""Files that are written: whole or not at all, and named where that fails."""

from __future__ import annotations

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
