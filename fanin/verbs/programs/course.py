"""`fanin course`: an environment for P4 courses."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failing
from fanin.options import creatable
from fanin.output import say


def course(
    folder: Annotated[
        Path, typer.Argument(file_okay=False, callback=creatable, help="Folder for the environment")
    ],
) -> None:
    """Prepare an environment in which P4 courses run.

    Neither p4c nor BMv2 is needed. The folder gets a Python with what course scripts import (Mininet, scapy, PTF,
    P4Runtime's and Thrift's clients) and the commands of `fanin shims`. Nothing outside it changes.

    Examples:
        fanin course ~/p4-course
        fanin course course
    """
    from fanin.bmv2_commands.course import CourseError, missing_programs, set_up
    from fanin.bmv2_commands.install import ForeignCommandError

    with failing("course", CourseError, ForeignCommandError):
        set_up(folder.expanduser())
    say(f"{folder} is ready. Put its commands first in PATH:\n")
    say(f"  export PATH={folder.expanduser().resolve() / 'bin'}:$PATH")
    if missing := missing_programs():
        say(f"\nCourses also run {', '.join(missing)}, which are not installed:\n")
        say(f"  sudo apt-get install {' '.join(sorted(set(missing.values())))}")
