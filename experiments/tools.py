"""The switches and compilers to choose from, and where BMv2 and p4c are on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from typing import Literal

Engine = Literal["embedded", "bmv2"]
Compiler = Literal["embedded", "p4c"]


class ToolError(RuntimeError):
    """A program is not here, or fails: the message holds what it said."""


class ToolMissingError(ToolError):
    """A program is not here; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program found on PATH, or by an environment variable that holds its command (a shell's words)."""

    name: str
    command: str
    variable: str
    package: str
    source: str

    def find(self) -> list[str]:
        """The words of its command line.

        Raises:
            ToolMissingError: it is not here.
        """
        words = shlex.split(os.environ.get(self.variable, "")) or [self.command]
        if shutil.which(words[0]) is not None:
            return words
        set_to = f" ({self.variable} is {os.environ[self.variable]!r})" if self.variable in os.environ else ""
        raise ToolMissingError(
            f"{self.name} is not here: no command {words[0]}{set_to}. On Ubuntu with the p4lang packages: "
            f"apt-get install {self.package}; or build it from {self.source}. Installed elsewhere: "
            f"{self.variable}=/path/to/{self.command}"
        )


BMV2 = Tool(
    "BMv2",
    "simple_switch_grpc",
    "FANIN_BMV2",
    "p4lang-bmv2",
    "https://github.com/p4lang/behavioral-model",
)
P4C = Tool("p4c", "p4c-bm2-ss", "FANIN_P4C", "p4lang-p4c", "https://github.com/p4lang/p4c")
