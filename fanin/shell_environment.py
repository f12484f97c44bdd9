"""The virtual environment of p4runtime-shell in the user's cache. It needs an older protobuf than fanin."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fanin.native.cache import CacheError, cache_directory, locked

# The stubs of the package p4runtime need a protobuf of the 3.20 series; pip would take a newer one.
PACKAGES = ("p4runtime-shell==0.0.6", "protobuf==3.20.3")
_NAME = "p4runtime-shell-"


class SetUpError(RuntimeError):
    """A failed installation of p4runtime-shell, with the output of pip."""


def folder() -> Path:
    """Return the environment's folder, which depends on this Python and on the packages."""
    made_of = repr((sys.version, sys.base_prefix, PACKAGES))
    return cache_directory() / f"{_NAME}{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"


def python() -> Path:
    """Return the environment's interpreter."""
    return folder() / "bin" / "python"


def ready() -> bool:
    """Return whether the environment is complete."""
    return _finished().exists()


def _finished() -> Path:
    """Return the file that is written last; an environment without it was interrupted."""
    return folder() / "finished"


def set_up() -> None:
    """Create the environment unless it exists. This needs the package index.

    Raises:
        SetUpError: If pip fails, or the user's cache cannot be written.
    """
    try:
        if not ready():
            with locked(folder()):
                if not ready():  # another process may have created it in the meantime
                    _make()
    except (CacheError, OSError) as error:
        raise SetUpError(f"p4runtime-shell cannot be installed: {error}") from error


def _make() -> None:
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder())],
        [str(python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise SetUpError(f"p4runtime-shell cannot be installed into {folder()}:\n{said}")
    _finished().touch()


def remove_all() -> Iterator[Path]:
    """Remove the environments of this and other Pythons, and yield the folder of each."""
    for found in cache_directory().glob(f"{_NAME}*/"):
        with locked(found):
            shutil.rmtree(found)
        yield found
