"""Start of a switch with a program from the cache, and of the command line: time and memory, next to their goals."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
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
_HELP = (*_PYTHON, "-m", "fanin", "--help")
BASELINE = "gRPC alone"
HELP = "fanin --help"


@dataclass(frozen=True, slots=True)
class Use:
    """Seconds until a process was ready, elapsed and of processor time, and its memory in bytes (resident, at most).

    The memory of a process that ends by itself is not known.
    """

    elapsed: float
    processor: float
    bytes: float | None


@dataclass(frozen=True, slots=True)
class Goal:
    """Most that a start should use; None where there is no goal."""

    elapsed: float | None = None
    processor: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True)
class StartOutcome:
    """Medians of the starts of a process, and their goals."""

    use: Use
    goal: Goal


def start_outcomes(
    small: bytes, large: bytes, repeats: int, done: Callable[[], None] = lambda: None
) -> Mapping[str, StartOutcome]:
    """Start switches, the baseline and `fanin --help` in turns, after one start of each that fills the caches.

    Args:
        small: The BMv2 JSON of a small program.
        large: That of a large one, which has a goal for its time only.
        repeats: The number of starts of each.
        done: Called after each round.

    Raises:
        SwitchBenchError: If a process does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = {BASELINE: (_BASELINE, Goal()), HELP: (_HELP, Goal(processor=0.3))}
        for name, config, goal in (
            ("switch, small program", small, Goal(elapsed=0.5, bytes=40e6)),
            ("switch, fanin.p4", large, Goal(elapsed=0.5)),
        ):
            program = Path(folder) / f"{len(started)}.json"
            program.write_bytes(config)
            options = ("--", "--grpc-server-addr", "127.0.0.1:0")
            started[name] = (*_PYTHON, "-m", "fanin.p4switch", str(program), *options), goal
        rounds = []
        for _ in range(1 + repeats):
            rounds.append({name: _start(command, name == HELP) for name, (command, _) in started.items()})
            done()
    return {
        name: StartOutcome(_median([one[name] for one in rounds[1:]]), goal)
        for name, (_, goal) in started.items()
    }


def _median(uses: Sequence[Use]) -> Use:
    sizes = [use.bytes for use in uses if use.bytes is not None]
    return Use(
        median(use.elapsed for use in uses),
        median(use.processor for use in uses),
        median(sizes) if sizes else None,
    )


def _start(command: Sequence[str], ends: bool) -> Use:
    """Start a process and return what it has used until it was ready, or until its end if it ends by itself."""
    began = time.perf_counter()
    # In a session of its own: after Ctrl-C, the switch would print where it was interrupted.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.read() if ends else process.stdout.readline()
            elapsed = time.perf_counter() - began
            status = Path(f"/proc/{process.pid}/status").read_text()
            if not ends:
                # send_signal() would reap a process that has ended, and lose what it has used.
                os.kill(process.pid, signal.SIGTERM)
            _, ended, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        finally:
            if process.returncode is None:
                process.kill()
    if not (line if ends else line.startswith(_READY)):
        raise SwitchBenchError(f"{' '.join(command)} did not start; its errors are above")
    # Not ru_maxrss, which includes the memory of this process, from before the other's exec.
    peak = None if ends else re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return Use(elapsed, usage.ru_utime + usage.ru_stime, int(peak[1]) * 1024 if peak else None)
