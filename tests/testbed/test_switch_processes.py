"""Switches as processes: what is reported when one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# A switch that a lack of memory ends: glibc, and the C++ library of gRPC, abort where they get none.
SCRIPT = """
import pathlib, sys
from fanin.testbed.switch_processes import SwitchProcess
from fanin.topologies.errors import NetworkError
from fanin.topologies.shapes import leaf_spine
switch = leaf_spine(0, 1, 2).switches[0]
process = SwitchProcess(switch, ["sh", "-c", "kill -ABRT $$"], pathlib.Path(sys.argv[1]))
process.start()
try:
    process.wait_ready()
except NetworkError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit", [None, 4 << 30])
def test_a_limit_of_memory_is_named_with_a_switch_that_has_ended(limit: int | None, tmp_path: Path) -> None:
    """The limit is named as a possible reason: a process that it ends reports nothing."""
    limited = [] if limit is None else ["prlimit", f"--as={limit}"]
    command = [*limited, sys.executable, "-c", SCRIPT, str(tmp_path / "log")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith("leaf1 has ended with signal SIGABRT")
    hint = "a process may use 4,096 MiB of addresses here; if that is too few: ulimit -v unlimited\n"
    assert said.endswith(hint) == (limit is not None)
