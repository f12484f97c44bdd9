"""Another Python than this one, which has what a benchmark is compared with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class PythonError(RuntimeError):
    """The one that was named will not do."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What it must have. check: a program that fails without it; variable: of the environment, which names such one."""

    what: str
    check: str
    variable: str


TORCH = Needed(
    "torch with Gloo, and numpy",
    "import numpy, torch.distributed as d; assert d.is_available() and d.is_gloo_available()",
    "FANIN_TORCH_PYTHON",
)
NS3 = Needed("ns-3", "import cppyy, importlib.util as u; assert u.find_spec('ns3')", "FANIN_NS3_PYTHON")


def find_python(asked: Path | None, needed: Needed) -> Path | None:
    """The one asked for, that of the environment, or this one; None: this one has not what is needed.

    Raises:
        PythonError: the one asked for has not.
    """
    named = asked or (Path(os.environ[needed.variable]) if needed.variable in os.environ else None)
    python = named or Path(sys.executable)
    try:
        done = subprocess.run([python, "-c", needed.check], capture_output=True, text=True, check=False)
    except OSError as error:
        raise PythonError(f"{python} cannot be run: {error.strerror}") from None
    if done.returncode == 0:
        return python
    if named:
        last = (done.stderr.strip().splitlines() or [f"it ends with status {done.returncode}"])[-1]
        raise PythonError(f"{named} has no {needed.what}: {last}")
    return None
