"""Selection of another Python, which has the software that a benchmark compares with."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


class PythonError(RuntimeError):
    """The given Python cannot be used."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The requirements on a Python.

    Attributes:
        what: What it must have, for messages.
        check: A program that fails without it.
        variable: Environment variable that names such a Python.
    """

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
    """Return the given Python, that of the environment, or this one; None if this one lacks what is needed.

    Raises:
        PythonError: The given one, or that of the environment, lacks it.
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
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise PythonError(f"{named} has no {needed.what}: {last}")
    return None
