"""Externs that actions can call, in a module for each or for a few that belong together: names and primitives."""

from pathlib import Path

OUTSIDE: set[Path] = set()
"""Files of what was registered from outside this package; what a program compiles to depends on them."""
