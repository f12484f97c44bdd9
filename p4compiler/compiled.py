"""The result of compiling a program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from finsy.proto import p4i
from google.protobuf import text_format

from fanin.p4compiler.source import Diagnostic, Span


@dataclass(frozen=True)
class Compiled:
    """Compiled program.

    Attributes:
        config: BMv2's JSON as one line.
        p4info: Its P4Info.
        warnings: Its warnings in the order of their places.
        states: The places of each parser state by name: its own, and those of its statements. BMv2's JSON has none.
    """

    config: bytes
    p4info: p4i.P4Info
    warnings: tuple[Diagnostic, ...]
    states: Mapping[str, tuple[Span, ...]]

    @cached_property
    def json(self) -> dict[str, Any]:
        """Return BMv2's JSON. A large program takes longer to read than to fetch from the cache."""
        document: dict[str, Any] = json.loads(self.config)
        return document

    def json_text(self) -> str:
        """Return the JSON as the text of a file."""
        return json.dumps(self.json, indent=2) + "\n"

    def device_config(self) -> bytes:
        """Return the JSON as sent over P4Runtime: compact, because gRPC limits messages to 4 MB."""
        return self.config

    def p4info_text(self) -> str:
        """Return the P4Info in protobuf's text format."""
        head = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"
        return head + str(text_format.MessageToString(self.p4info))
