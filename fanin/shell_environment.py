"""The virtual environment of p4runtime-shell, which needs an older protobuf than fanin; in the user's cache."""

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
    """p4runtime-shell cannot be installed; the message holds what was said."""


def folder() -> Path:
    """Where it is, or will be: another Python, or other packages, have another."""
    made_of = repr((sys.version, sys.base_prefix, PACKAGES))
    return cache_directory() / f"{_NAME}{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"


def python() -> Path:
    """Its interpreter."""
    return folder() / "bin" / "python"


def ready() -> bool:
    """Whether it is there, and whole."""
    return _finished().exists()


def _finished() -> Path:
    """What is put into it last: an environment without it was interrupted."""
    return folder() / "finished"


def set_up() -> None:
    """Makes the environment, unless it is there; needs the package index.

    Raises:
        SetUpError: it cannot be installed, with what pip says; or there is no room for it in the user's cache.
    """
    try:
        if not ready():
            with locked(folder()):
                if not ready():  # nobody else has made it in the meantime
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
    """Removes this one and those of other Pythons; gives the folder of each."""
    for found in cache_directory().glob(f"{_NAME}*/"):
        with locked(found):
            shutil.rmtree(found)
        yield found
