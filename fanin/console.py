"""The terminal that verbs write to."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fanin.native.text import printable


class _Console(Console):
    """A console whose text is cleaned by printable(): Rich leaves terminal escapes in it as they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of a renderable. Those that control the terminal are Rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = _Console()
wide = _Console(
    width=300
)  # rather beyond the terminal's width than folded or cut: a pipe gets each row on one line
