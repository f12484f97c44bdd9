"""Writing the commands into a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

_MODULES = {
    "p4c": "p4c",
    "p4c-bm2-ss": "p4c",
    "simple_switch": "simple_switch",
    "simple_switch_grpc": "simple_switch",
    "simple_switch_CLI": "simple_switch_cli",
}
COMMANDS = tuple(_MODULES)
_MARK = "# Written by fanin shims."


class ForeignCommandError(Exception):
    """File in the way that is not one of ours. The message names it and the cure."""


def install(folder: Path) -> Iterable[Path]:
    """Write the commands into a folder, which is created if needed. Those of an earlier call are replaced.

    Raises:
        ForeignCommandError: If the folder holds a file of that name which this function did not write, such as a real
            p4c. Then nothing is written.
        OSError: If the folder cannot be written.
    """
    paths = {name: folder / name for name in COMMANDS}
    for path in paths.values():
        if path.exists() and _MARK not in path.read_text(errors="replace"):
            raise ForeignCommandError(
                f"{path} exists and is not fanin's: choose another folder, or move it away"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        path.unlink(missing_ok=True)  # it may be a link
        path.write_text(_script(name))
        path.chmod(0o755)
    return paths.values()


def _script(name: str) -> str:
    """Return a command as a script for this interpreter, which `sudo` and other users find without PATH."""
    module = _MODULES[name]
    argument = "" if module == "simple_switch_cli" else repr(name)
    # -P: the folder of the commands is not searched for modules.
    return (
        f"#!{sys.executable} -P\n{_MARK}\nimport sys\n\n"
        f"from fanin.bmv2_commands.{module} import main\n\nsys.exit(main({argument}))\n"
    )
