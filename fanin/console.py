"""The terminal to which verbs write."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from fanin.native.text import printable


class Terminal(Console):
    """A console whose text is cleaned by printable(): Rich leaves terminal escapes in it as they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable. Control segments come from Rich itself and stay as they are."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = Terminal()
messages = Terminal(stderr=True)
wide = Terminal(
    width=300
)  # wider than the terminal, so that a pipe gets each row on one line, not folded or cut
