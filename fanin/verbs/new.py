"""`fanin new`: a folder with a program, or a protocol, of your own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Annotated

import typer

from fanin.cli_errors import failure
from fanin.output import say

TEMPLATES = Path(__file__).parents[1] / "templates" / "project"
PROTOCOL_TEMPLATES = TEMPLATES.parent / "protocol"
_EXAMPLE = "majority"  # the protocol that a new one begins as
_NAME = "NAME"  # replaced in the templates by the name of the folder


def new(
    folder: Annotated[Path, typer.Argument(metavar=_NAME, help="Folder to create")],
    protocol: Annotated[
        bool, typer.Option("--protocol", help="Make an aggregation protocol, which begins as a majority vote")
    ] = False,
) -> None:
    """Create a folder with a P4 program and a scenario to edit.

    The folder also has a controller, a worker, a topology and an STF test. All of them run. Its README.md shows how to
    run them, docs/how-to/own.md how to change them. With --protocol, it is an aggregation protocol
    (docs/how-to/protocols.md).

    Examples:
        fanin new mine
        fanin new --protocol vote
    """
    # Imported here to keep --help fast.
    from fanin.controller.requirements import PROGRAM
    from fanin.experiments.protocol import PROGRAM_FILE, PROTOCOLS, PYTHON_FILE

    name = folder.resolve().name
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):  # as names of scenarios
        raise failure("new", f"{name}: use small letters, digits and -, and begin with a letter or digit", 2)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise failure("new", f"{folder} exists already; choose another name", 2) from None
    except OSError as error:
        raise failure("new", f"{folder} cannot be created: {error.strerror}") from None
    templates = [*(PROTOCOL_TEMPLATES if protocol else TEMPLATES).iterdir()]
    if protocol:
        templates += (PROTOCOLS / _EXAMPLE / part for part in (PROGRAM_FILE, PYTHON_FILE))
    for template in sorted(templates):
        if template.is_file():
            text = template.read_text().replace(_NAME, name)
            (folder / template.name).write_text(text.replace("../../p4src/", "p4src/"))
    (folder / PROGRAM.parent.name).mkdir()
    for part in sorted(PROGRAM.parent.glob("*.p4")):
        if protocol or part != PROGRAM:  # program.p4 replaces it
            shutil.copyfile(part, folder / PROGRAM.parent.name / part.name)
    say(f"{folder}: README.md explains the next steps. Begin with:\n  cd {folder} && fanin run scenario.toml")
