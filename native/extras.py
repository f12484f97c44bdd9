"""The packages that fanin needs only for some commands: the extras of its package."""

from __future__ import annotations

import shlex
import sys


def install_command(extra: str) -> str:
    """Return the command that installs an extra next to this fanin, from a clone or from a wheel.

    It names this Python: `pip` alone may belong to another one, which would look for a package called fanin on PyPI.
    """
    return f"{shlex.quote(sys.executable)} -m pip install 'fanin[{extra}]'"
