"""Unix sockets at paths of any length."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """Yield another name of `path` that fits into a socket's address, which holds 107 bytes. It is valid inside.

    Raises:
        OSError: If the folder does not exist.
    """
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
