"""The terminal that verbs write to."""

from __future__ import annotations

from rich.console import Console

console = Console()
wide = Console(
    width=300
)  # rather beyond the terminal's width than folded or cut: a pipe gets each row on one line
