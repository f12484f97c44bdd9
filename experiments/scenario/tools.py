"""The switches and compilers to choose from, and the places of BMv2 and p4c on this machine."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import shutil
from dataclasses import dataclass
from typing import Literal

SwitchKind = Literal["embedded", "bmv2"]
Compiler = Literal["embedded", "p4c"]


class ToolError(RuntimeError):
    """A program that is not installed or fails; the message has its output."""


class ToolMissingError(ToolError):
    """A program that is not installed; the message explains how to get it."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A program found on PATH, or by an environment variable with its command line."""

    name: str
    command: str
    variable: str
    source: str

    def find(self) -> list[str]:
        """Return the words of its command line.

        Raises:
            ToolMissingError: If it is not installed.
        """
        words = shlex.split(os.environ.get(self.variable, "")) or [self.command]
        if shutil.which(words[0]) is not None:
            return words
        set_to = f" ({self.variable} is {os.environ[self.variable]!r})" if self.variable in os.environ else ""
        raise ToolMissingError(
            f"{self.name} is not installed: there is no command {words[0]}{set_to}. {packages()}; or build it from "
            f"{self.source}. If it is installed elsewhere, set {self.variable}=/path/to/{self.command}"
        )


def packages() -> str:
    """Describe where this release has packages of BMv2 and p4c (see p4lang-packages.sh)."""
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
        if release["ID"] == "ubuntu" and release.get("VERSION_ID") == "22.04":
            return "sudo ./p4lang-packages.sh installs p4lang's packages"
        return f"p4lang has packages for Ubuntu 22.04 (vagrant up), none known for {release['PRETTY_NAME']}"
    return "p4lang has packages for Ubuntu 22.04 (vagrant up)"


BMV2 = Tool(
    "BMv2",
    "simple_switch_grpc",
    "FANIN_BMV2",
    "https://github.com/p4lang/behavioral-model",
)
P4C = Tool("p4c", "p4c-bm2-ss", "FANIN_P4C", "https://github.com/p4lang/p4c")
