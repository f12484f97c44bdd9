"""Time from JSON to a running switch, in a fresh process, with an empty and a full cache of compiled programs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fanin.assurance.bench.switch.errors import SwitchBenchError

_LOAD = """
import sys, time
from pathlib import Path
from fanin.native.collector import collect_seldom
from fanin.p4switch.engine.engine import Engine
collect_seldom()  # as a switch does
began = time.perf_counter()
engine = Engine.load(Path(sys.argv[1]).read_bytes())
engine.start({1: sys.argv[2]})
print(time.perf_counter() - began)
engine.stop()
"""


def loading_seconds(config: str, interface: str) -> tuple[float, float]:
    """Return the seconds from BMv2 JSON to forwarding, without imports: the first time, and from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.json")
        program.write_text(config)
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        first, *again = (_load(program, interface, environment) for _ in range(4))
    return first, sorted(again)[1]


def _load(program: Path, interface: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", _LOAD, str(program), interface]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SwitchBenchError(f"the switch did not start: {done.stderr.strip()}")
    return float(done.stdout)
