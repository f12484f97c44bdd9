"""The primitives that actions call, in a module for each or for a few that belong together: names, C and traces."""

from pathlib import Path

OUTSIDE: set[Path] = set()
"""Files of what was registered from outside this package; a program's C depends on them."""
