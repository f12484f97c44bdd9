"""Faults of processes: commands that run live networks, in which a process is killed, ended or paused at random.

A seed draws the command, the network, a point of progress, a delay after it, a process and a signal. The point is
observed from outside: by the names of the processes, and by what the command prints and opens. Process ids and
scheduling are not reproducible, so a seed repeats the moment only to within some milliseconds.
"""

from __future__ import annotations

import itertools
import os
import random
import shlex
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fanin.native import libc
from fanin.native.files import write_json
from fanin.testbed.patience import setting
from fanin.testbed.process_stats import process_stats
from fanin.testbed.running import JOB_SERVICE

_LOOK_SECONDS = 0.005  # between checks of the command's progress
# Time limits on an ordinary machine: to reach a point, for the command to end after the fault, and for all its
# processes to end after the command. A worker that waits in vain gives up sooner than the second limit.
_POINT_SECONDS, _END_SECONDS, _REMNANT_SECONDS = 120.0, 240.0, 90.0

# All-reduces of integers, each compared with the exact sum.
_PROGRAM = """
import numpy, fanin
comm = fanin.init(timeout=20)
for n in range(300):
    total = comm.allreduce(numpy.arange(20_000, dtype=numpy.int32) * (comm.rank + 1) + n)
    ranks = comm.size * (comm.size + 1) // 2
    if not (total == numpy.arange(20_000) * ranks + n * comm.size).all():
        print("a wrong sum", flush=True)
    if n == 10:
        print("begun", flush=True)
print("done", flush=True)
"""

# Points of progress by command, in their order, each with the longest delay after it in seconds. At "ending" the
# command gets SIGINT, and the delay begins.
_POINTS: Mapping[str, Mapping[str, float]] = {
    "up": {
        "started": 1.0,
        "sandbox": 1.0,
        "shells": 0.5,
        "switches": 1.0,
        "controller": 2.0,
        "serving": 3.0,
        "ending": 0.5,
    },
    "demo": {
        "started": 1.0,
        "sandbox": 2.0,
        "shells": 0.5,
        "switches": 2.0,
        "workers": 12.0,
        "ending": 0.5,
    },
    "launch": {
        "started": 1.0,
        "shells": 0.5,
        "switches": 1.0,
        "controller": 2.0,
        "ranks": 2.0,
        "summing": 2.0,
        "ending": 0.5,
    },
}
# The process that must run for a point to be reached, by the first word of its name.
_PROCESSES = {
    "shells": "shell",
    "switches": "switch",
    "controller": "controller",
    "workers": "worker",
    "ranks": "rank",
}
_LAST = {"up": "serving", "demo": "workers", "launch": "summing"}  # the point before "ending"

# Names of processes, by the module on their command line.
_NAMES = {
    "fanin.p4switch": "switch",
    "fanin.testbed.preloaded": "preloader",
    "fanin.testbed.capture": "capture",
    "fanin.testbed.control.controller_main": "controller",
    "fanin.experiments.live.worker": "worker",
}
_NEVER_SAID = ("Traceback", "Exception ignored", "Fatal Python error", "wrong sum", "outside their bound")


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: the process, the signal, and when.

    Attributes:
        seed: Seed that it was drawn from.
        command: up, demo or launch.
        workers: Hosts of the network, on `leaves` leaves.
        leaves: One or two; two have a spine.
        standby: Whether a second controller waits.
        point: The point of progress.
        delay: Seconds after it.
        victim: Chooses one of the processes by its position among all, sorted by name; from 0 to 1.
        number: The signal.
        pause: Seconds between SIGSTOP and SIGCONT.
        settle: Seconds between the fault and Ctrl-C if the command does not end by itself.
    """

    seed: int
    command: str
    workers: int
    leaves: int
    standby: bool
    point: str
    delay: float
    victim: float
    number: signal.Signals
    pause: float
    settle: float

    def arguments(self, program: Path) -> list[str]:
        """Return the command line of fanin."""
        network = ["--workers", str(self.workers), "--leaves", str(self.leaves)]
        network += ["--spines", str(self.leaves - 1)]
        up = [*network, *(["--standby"] if self.standby else [])]
        match self.command:
            case "up":
                return ["up", *up, "--pcap", "pcap"]
            case "launch":
                return ["launch", "--up", shlex.join(up), str(program)]
        return ["demo", *network]


@dataclass(frozen=True, slots=True)
class LiveOutcome:
    """The end of a command.

    Attributes:
        fault: The fault.
        victim: Name of the process that got the signal.
        status: Exit status.
        seconds: Time from the fault to the end.
        violations: What was wrong.
        said: Output of the command.
    """

    fault: Fault
    victim: str
    status: int | None
    seconds: float
    violations: tuple[str, ...]
    said: str

    def __str__(self) -> str:
        fault = self.fault
        messages = [line for line in self.said.splitlines() if line.startswith("fanin")]
        return (
            f"fanin {fault.command}: {fault.number.name} to {self.victim or 'nobody'} {fault.delay:.3f} s after "
            f"{fault.point}; exit status {self.status} after {self.seconds:.1f} s; {' / '.join(messages[:3])}"
        )


@dataclass(slots=True)
class LiveSoak:
    """The faults so far: how often each signal hit each kind of process, and where something was wrong."""

    faults: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    failures: list[LiveOutcome] = field(default_factory=list)
    longest: float = 0.0

    def add(self, outcome: LiveOutcome) -> None:
        """Count one more."""
        self.faults += 1
        kind = outcome.victim.split(" ")[0] or "nobody"
        self.hit[f"{outcome.fault.number.name} {kind}"] += 1
        self.longest = max(self.longest, outcome.seconds)
        if outcome.violations:
            self.failures.append(outcome)

    def write(self, folder: Path) -> None:
        """Write summary.json into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        summary = {
            "faults": self.faults,
            "hit": dict(sorted(self.hit.items())),
            "longest_end_seconds": self.longest,
            "failures": [asdict(failure) for failure in self.failures],
        }
        write_json(summary, folder / "summary.json")


def draw_fault(seed: int) -> Fault:
    """Draw a command and its fault."""
    draw = random.Random(seed)
    command = draw.choice(list(_POINTS))
    leaves = draw.choice((1, 2))
    point, longest = draw.choice(list(_POINTS[command].items()))
    signals = (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT)
    return Fault(
        seed=seed,
        command=command,
        workers=2 * draw.choice((1, 2)),
        leaves=leaves,
        standby=draw.random() < 0.5,
        point=point,
        delay=draw.uniform(0, longest),
        victim=draw.random(),
        number=draw.choices(signals, (4, 3, 2, 2))[0],
        pause=draw.uniform(0.1, 3.0),
        settle=draw.uniform(0, 3.0),
    )


def soak_live(
    first_seed: int, seeds: int, fanin: Sequence[str], progress: Callable[[LiveSoak, LiveOutcome], None]
) -> LiveSoak:
    """Run the faults of `seeds` seeds, one after the other.

    Args:
        first_seed: The first seed; the others follow.
        seeds: Number of seeds.
        fanin: The command line of fanin, without arguments.
        progress: Called after each.
    """
    # Orphans become children of this process, so that all processes that a command has started can be found.
    libc.call("prctl", libc.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    so_far = LiveSoak()
    try:
        for seed in range(first_seed, first_seed + seeds):
            outcome = run_fault(draw_fault(seed), fanin)
            so_far.add(outcome)
            progress(so_far, outcome)
    finally:
        libc.call("prctl", libc.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    return so_far


def run_fault(fault: Fault, fanin: Sequence[str]) -> LiveOutcome:
    """Run a command, cause its fault, and check what it prints and leaves behind."""
    interfaces = _interfaces()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        run = _Run(fault, Path(name), fanin)
        try:
            outcome = run.run()
        finally:
            run.end()
    if more := _interfaces() - interfaces:
        violation = f"interfaces are left: {', '.join(sorted(more))}"
        return LiveOutcome(
            fault,
            outcome.victim,
            outcome.status,
            outcome.seconds,
            (*outcome.violations, violation),
            outcome.said,
        )
    return outcome


class _Run:
    """A command that runs in `folder`."""

    def __init__(self, fault: Fault, folder: Path, fanin: Sequence[str]) -> None:
        self._fault = fault
        self._factor = setting()
        self._temporary = folder / "tmp"
        self._output = folder / "output"
        self._temporary.mkdir()
        program = folder / "sums.py"
        program.write_text(_PROGRAM)
        self._others = set(
            map(int, Path("/proc/self/task", str(os.getpid()), "children").read_text().split())
        )
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*fanin, *fault.arguments(program)],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(self._temporary), "COLUMNS": "200"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def run(self) -> LiveOutcome:
        """Reach the point, send the signal, wait for the end, and check what is left."""
        fault, violations = self._fault, []
        if not self._reach():
            violations.append(f"it did not get as far as {fault.point}")
        self._wait(fault.delay)
        victim = self._strike()
        begun = time.monotonic()
        if fault.command == "up" and fault.point != "ending":
            self._wait(fault.settle)
            self._interrupt()
        if not self._wait(_END_SECONDS * self._factor):
            violations.append(f"it hangs; there are {self._described()}")
            self._process.kill()
            self._process.wait()
        status, seconds = self._process.returncode, time.monotonic() - begun
        limit = time.monotonic() + _REMNANT_SECONDS * self._factor
        while self._remnants():
            if time.monotonic() >= limit:
                violations.append(f"processes are left: {self._described()}")
                break
            time.sleep(_LOOK_SECONDS)
        if files := sorted(path.name for path in self._temporary.iterdir()):
            violations.append(f"temporary files are left: {', '.join(files)}")
        said = self._output.read_text(errors="replace")
        violations += _wrong(fault, victim, status, said)
        return LiveOutcome(fault, victim, status, seconds, tuple(violations), said)

    def end(self) -> None:
        """End everything that still runs."""
        self._process.kill()
        self._process.wait()
        while remnants := self._remnants():
            for process in remnants:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(_LOOK_SECONDS)

    def _reach(self) -> bool:
        """Wait for the point of progress, and return whether it comes."""
        point = self._fault.point
        before = _LAST[self._fault.command] if point == "ending" else point
        limit = time.monotonic() + _POINT_SECONDS * self._factor
        while not self._at(before):
            if self._process.poll() is not None or time.monotonic() >= limit:
                return False
            time.sleep(_LOOK_SECONDS)
        if point == "ending":
            self._interrupt()
        return True

    def _at(self, point: str) -> bool:
        match point:
            case "started":
                return True
            case "sandbox":
                return any(self._temporary.glob("fanin-run-*"))
            case "serving":
                return any(self._temporary.glob(f"fanin-run-*/{JOB_SERVICE}"))
            case "summing":
                return "begun" in self._output.read_text(errors="replace")
        return any(name.split(" ")[0] == _PROCESSES[point] for name in self._named().values())

    def _wait(self, seconds: float) -> bool:
        """Return whether the command ends within this many seconds."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            return True
        return False

    def _interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def _strike(self) -> str:
        """Send the signal, and return the name of the process that gets it, or "" if there is none."""
        named = sorted((name, process) for process, name in self._named().items())
        if not named:
            return ""
        name, process = named[int(self._fault.victim * len(named))]
        try:
            handle = os.pidfd_open(process)
        except ProcessLookupError:
            return ""
        try:
            signal.pidfd_send_signal(handle, self._fault.number)
            if self._fault.number == signal.SIGSTOP:
                time.sleep(self._fault.pause)
                signal.pidfd_send_signal(handle, signal.SIGCONT)
        except ProcessLookupError:
            pass
        finally:
            os.close(handle)
        return name

    def _named(self) -> dict[int, str]:
        """Return all processes of the command with their names; several of one name are numbered."""
        counts: Counter[str] = Counter()
        named = {}
        for process in self._descendants():
            if words := _words(process):
                name = _name(words)
                counts[name] += 1
                named[process] = name if counts[name] == 1 else f"{name} {counts[name]}"
        return named

    def _described(self) -> str:
        """Return which processes still run, and their states."""
        return ", ".join(f"{name} ({_state(process)})" for process, name in self._named().items())

    def _descendants(self) -> Iterator[int]:
        """Yield the processes of the command, parents before children."""
        if self._process.returncode is None:
            yield self._process.pid
        yield from self._remnants()

    def _remnants(self) -> list[int]:
        """Return the processes other than the command itself, and reap those that have ended."""
        children: dict[int, list[int]] = {}
        us = os.getpid()
        for process, (state, parent, *_) in process_stats():
            if process in self._others:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(process)
            elif int(parent) == us and process != self._process.pid:
                with suppress(ChildProcessError):
                    os.waitpid(process, os.WNOHANG)
        family = [us]
        for member in family:
            family += sorted(children.get(member, ()))
        return [process for process in family if process not in (us, self._process.pid)]


def _wrong(fault: Fault, victim: str, status: int, said: str) -> Iterator[str]:
    """Yield forbidden output, and an exit status that does not match what happened."""
    # Output of ranks does not count. Python that is interrupted during imports prints its own traceback.
    lines = [line for line in said.splitlines() if not line.startswith("[") or "wrong sum" in line]
    importing = fault.point == "started" and fault.number == signal.SIGINT
    for never in _NEVER_SAID:
        if any(never in line for line in lines) and not (never == "Traceback" and importing):
            yield f"it prints: {next(line for line in lines if never in line)}"
    interrupted = fault.command == "up" or fault.point == "ending"
    usual = 130 if interrupted else 0
    # Until a command begins, Ctrl-C ends it as SIGTERM does (fanin/__main__.py). On a busy machine it is that slow.
    not_begun = interrupted and fault.point == "started" and status == -signal.SIGINT and not said
    if fault.number == signal.SIGSTOP and status != usual and not not_begun:
        yield f"exit status {status} after a pause of {fault.pause:.1f} s, which is to change nothing"
    if status == 0 and fault.command == "demo" and "Every sum within its bound" not in said:
        yield "exit status 0 without all results"
    if status in (1, 2, 137) and not any(line.startswith("fanin") for line in lines):
        yield f"exit status {status} without a word"
    if status < 0 and victim != "fanin":
        yield f"it was killed by {signal.Signals(-status).name}, which was sent to {victim}"


def _name(words: Sequence[str]) -> str:
    """Return the name of a process, by its command line."""
    if words[-1].startswith("mininet:"):
        return f"shell {words[-1].partition(':')[2]}"
    for word, following in itertools.pairwise(words):
        if word == "-m" and following in _NAMES:
            if following == "fanin.p4switch" and "--device-id" in words:
                return f"switch {words[words.index('--device-id') + 1]}"
            return _NAMES[following]
    if words[-1].endswith("/sums.py") and "launch" not in words:
        return "rank"
    return "fanin" if any("fanin" in word for word in words[:4]) else Path(words[0]).name


def _words(process: int) -> list[str]:
    with suppress(OSError):
        return (
            Path(f"/proc/{process}/cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        )
    return []


def _state(process: int) -> str:
    """Return what a process waits for, for a report."""
    with suppress(OSError):
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return f"{process} {state} {Path(f'/proc/{process}/wchan').read_text()}"
    return f"{process} has ended"


def _interfaces() -> set[str]:
    """Return the interfaces of links in this namespace."""
    return {path.name for path in Path("/sys/class/net").iterdir() if "-eth" in path.name}
