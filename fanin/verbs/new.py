"""`fanin new`: a folder to begin with."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failure
from fanin.output import say

TEMPLATES = Path(__file__).parents[1] / "templates"
_NAME = "NAME"  # in the templates, what the new folder's takes the place of


def new(
    folder: Annotated[Path, typer.Argument(metavar=_NAME, help="a folder that does not exist yet")],
) -> None:
    """Make a folder with a P4 program, a controller, a worker, a topology, a STF test and a scenario that run.

    Its README.md says how to run them, docs/how-to/own.md what to change.
    """
    # Not above: it takes a second, for which --help should not wait.
    from fanin.controller.requirements import PROGRAM

    name = folder.resolve().name
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):  # as names of scenarios
        raise failure("new", f"{name}: begin with a small letter or a digit; after it - may come too", 2)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise failure("new", f"{folder} is there already; choose another name", 2) from None
    except OSError as error:
        raise failure("new", f"{folder} cannot be made: {error.strerror}") from None
    for template in sorted(TEMPLATES.iterdir()):
        if template.is_file():
            (folder / template.name).write_text(template.read_text().replace(_NAME, name))
    (folder / PROGRAM.parent.name).mkdir()
    for part in sorted(PROGRAM.parent.glob("*.p4")):
        if part != PROGRAM:  # which program.p4 is in the place of
            shutil.copyfile(part, folder / PROGRAM.parent.name / part.name)
    say(f"{folder}: README.md says how to go on, beginning with:\n  cd {folder} && fanin run scenario.toml")
