"""The terminal that verbs write to."""

from __future__ import annotations

from rich.console import Console

console = Console()
