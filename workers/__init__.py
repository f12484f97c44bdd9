"""Workers: all-reduce through the switches and its host-based baselines."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fanin.workers.api import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: a program that only starts workers needs no numpy."""
    if find_spec(f"{__name__}.{name}"):
        # A module of this package: after this error, `from fanin.workers import …` imports it as a module.
        raise AttributeError(f"{__name__}.{name} is a module: import it")
    return getattr(import_module("fanin.workers.api"), name)
