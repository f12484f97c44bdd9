"""The events of a Chrome or Kineto trace, one by one, each with its line. A file of a gigabyte needs little memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from fanin.experiments.workloads.trace import TraceError

_CHUNK = 1 << 20  # characters
_LONGEST = 1 << 26  # characters of one event or of one value outside of the events
_SPACE = re.compile(r"[\s]*")
_DECODER = json.JSONDecoder()


class JsonEvents:
    """The events of the list `traceEvents`, or of a file that is only a list.

    Args:
        text: The file.
        name: Its name, for messages.

    Attributes:
        line: The line on which the newest event begins.
        facts: The values of all other keys that have been read so far. All are there once the events are at an end.
    """

    def __init__(self, text: TextIO, name: str) -> None:
        self.line = 1
        self.facts: dict[str, Any] = {}
        self._text, self._name = text, name
        self._buffer, self._at = "", 0
        self._counted = 0  # up to where line breaks have been counted
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        """Yield the events.

        Raises:
            TraceError: If the file is not JSON, or not of this form.
        """
        if self._peek() == "[":
            yield from self._list()
        else:
            yield from self._object()
        if self._peek():
            raise self._error("has something behind the end of the trace")

    def _object(self) -> Iterator[Any]:
        self._take("{")
        found = False
        while self._peek() != "}":
            key = self._value()
            self._take(":")
            if key == "traceEvents":
                found = True
                yield from self._list()
            else:
                self.facts[key] = self._value()
            if self._peek() == ",":
                self._take(",")
            elif self._peek() != "}":
                raise self._error("expected ',' or '}'")
        self._take("}")
        if not found:
            keys = ", ".join(map(repr, [*self.facts][:8]))
            raise TraceError(
                f"{self._name}: has no list 'traceEvents' (its keys are {keys or 'none'}); is it a trace?"
            )

    def _list(self) -> Iterator[Any]:
        self._take("[")
        while self._peek() != "]":
            yield self._value()
            if self._peek() == ",":
                self._take(",")
            elif self._peek() != "]":
                raise self._error("expected ',' or ']'")
        self._take("]")

    def _value(self) -> Any:
        """Return the next value of any kind."""
        self._peek()
        self._count(self._at)
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except json.JSONDecodeError as error:
                if self._ended and error.pos < len(self._buffer):
                    self._count(error.pos)
                    raise self._error(f"is not JSON: {error.msg[0].lower()}{error.msg[1:]}") from None
                if self._ended:
                    raise self._error("ends in the middle: the file is truncated") from None
            except RecursionError:
                raise self._error("has lists in lists, too deep to read") from None
            else:
                # A number may continue behind the buffer.
                if end < len(self._buffer) or self._ended:
                    self._at = end
                    return value
            if len(self._buffer) - self._at > _LONGEST:
                raise self._error(f"is longer than {_LONGEST:,} characters, or not JSON")
            self._more(max(_CHUNK, len(self._buffer) - self._at))

    def _take(self, character: str) -> None:
        if (found := self._peek()) != character:
            if not found:
                raise self._error("ends in the middle: the file is truncated")
            raise self._error(f"expected {character!r}, found {found!r}")
        self._at += 1

    def _peek(self) -> str:
        """Return the next character after spaces, or nothing at the end of the file."""
        while True:
            match = _SPACE.match(self._buffer, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._more(_CHUNK)

    def _more(self, size: int) -> None:
        self._count(self._at)
        try:
            new = self._text.read(size)
        except UnicodeDecodeError:
            raise self._error("has bytes that are not UTF-8") from None
        self._buffer = self._buffer[self._at :] + new
        self._at = self._counted = 0
        self._ended = not new

    def _count(self, upto: int) -> None:
        if upto > self._counted:
            self.line += self._buffer.count("\n", self._counted, upto)
            self._counted = upto

    def _error(self, problem: str) -> TraceError:
        self._count(self._at)
        return TraceError(f"{self._name}:{self.line}: {problem}")
