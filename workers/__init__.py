"""Workers: all-reduce through the switches and its host-based baselines."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.api import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Imported when it is first asked for: what only starts workers, and knows their variables, needs no numpy."""
    return getattr(import_module("workers.api"), name)
