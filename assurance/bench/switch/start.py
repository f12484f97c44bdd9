"""Start of a switch with a program from the cache: processor time and memory, compared with a bare Python process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from fanin.assurance.bench.switch.errors import SwitchBenchError

_PYTHON = (sys.executable, "-P")
_READY = "ready"
# A process that serves P4Runtime in Python cannot do with less than this.
_BASELINE = (
    *_PYTHON,
    "-c",
    f"import fanin.p4switch.p4runtime.proto, grpc, signal; print('{_READY}', flush=True); signal.pause()",
)


@dataclass(frozen=True, slots=True)
class _Use:
    seconds: float  # of processor time
    bytes: int  # resident, at most


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """Medians of starts until a switch is ready, and of those of a process that only loads gRPC and the messages.

    Times are in seconds of processor time, memory is in bytes.
    """

    seconds: float
    baseline_seconds: float
    bytes: int
    baseline_bytes: int

    @property
    def ratio(self) -> float:
        """Return how many times the baseline's processor time a start takes."""
        return self.seconds / self.baseline_seconds


def start_outcome(config: bytes, repeats: int) -> StartOutcome:
    """Start a switch and a baseline in turns, after one start that fills the cache.

    Args:
        config: The BMv2 JSON of the program.
        repeats: The number of starts of each.

    Raises:
        SwitchBenchError: If a process does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program.json"
        program.write_bytes(config)
        switch = (*_PYTHON, "-m", "fanin.p4switch", str(program), "--", "--grpc-server-addr", "127.0.0.1:0")
        _start(switch)
        pairs = [(_start(switch), _start(_BASELINE)) for _ in range(repeats)]
    switches, baselines = zip(*pairs, strict=True)
    return StartOutcome(
        median(use.seconds for use in switches),
        median(use.seconds for use in baselines),
        round(median(use.bytes for use in switches)),
        round(median(use.bytes for use in baselines)),
    )


def _start(command: Sequence[str]) -> _Use:
    """Start a process, end it once it is ready, and return what it has used."""
    # In a session of its own: after Ctrl-C, the switch would print where it was interrupted.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            # Not ru_maxrss, which includes the memory of this process, from before the other's exec.
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
            # send_signal() would reap a process that has ended, and lose what it has used.
            os.kill(process.pid, signal.SIGTERM)
            _, ended, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        finally:
            if process.returncode is None:
                process.kill()
    if not line.startswith(_READY) or peak is None:
        raise SwitchBenchError(f"{' '.join(command)} did not start; its errors are above")
    return _Use(usage.ru_utime + usage.ru_stime, int(peak[1]) * 1024)
