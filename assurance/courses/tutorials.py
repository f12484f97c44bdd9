"""The exercises of p4lang/tutorials, skeleton and solution.

`python -m fanin.assurance.courses.tutorials CHECKOUT COURSE [EXERCISE…]` runs them and prints a table in Markdown.
CHECKOUT is a folder with the tutorials, and COURSE one that `fanin course` has made. Each run has its own namespaces
and its own copy of the checkout. It needs root.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fanin.assurance.courses.experiment import ExperimentOutcome, judge, run_inside


@dataclass(frozen=True, slots=True)
class Exercise:
    """Exercise: the experiment of its README.

    `experiment` is what to type at Mininet's prompt. `solved` and `unsolved` are patterns that its output has with the
    solution and with the skeleton, and `absent` those that it has not with the skeleton; the files `shown` are part of
    it. With `has_ptf`, `make test` runs tests with PTF, which use the solution.
    """

    name: str
    experiment: tuple[str, ...]
    solved: tuple[str, ...]
    unsolved: tuple[str, ...]
    shown: tuple[str, ...] = ()
    has_ptf: bool = False
    absent: tuple[str, ...] = ()


def _listening(*hosts: str) -> tuple[str, ...]:
    """Return commands that start the exercise's receiver on hosts, and wait until all of them listen."""
    waiting = (
        f"sh timeout 60 sh -c 'until grep -q sniffing {host}.log; do sleep 0.2; done'" for host in hosts
    )
    return (*(f"{host} ./receive.py > {host}.log 2>&1 &" for host in hosts), *waiting, "sh sleep 1")


def _iperf(client: str, server: str, address: str) -> tuple[str, ...]:
    """Return commands that send over TCP for four seconds.

    Mininet's own command `iperf` waits forever with iperf 2.1, which prints nothing for a connection without data.
    """
    sends = f"timeout 20 iperf -c {address} -t 4 > /dev/null; echo iperf from {client} to {server} ended $?"
    return (f"{server} iperf -s > /dev/null 2>&1 &", "sh sleep 1", f"{client} {sends}")


_QUEUE = (  # a slow sender next to a fast one
    "h22 iperf -s -u > /dev/null 2>&1 &",
    *_listening("h2"),
    'h1 ./send.py 10.0.2.2 "P4 is cool" 20 > /dev/null 2>&1 &',
    "h11 iperf -c 10.0.2.22 -t 15 -u > /dev/null 2>&1",
    "sh timeout 60 sh -c 'until grep -q got h2.log; do sleep 0.2; done'",
    "sh sleep 10",
)
_PING = "h1 ping -c 3 -W 1 h2"
_ANSWERED, _LOST = r"3 received, 0% packet loss", r"0 received, 100% packet loss"
# Unbuffered: it is killed with what it has not written yet.
_CONTROLLER = "sh PYTHONUNBUFFERED=1 ./mycontroller.py > controller.log 2>&1 &"

EXERCISES = (
    Exercise("basic", (_PING, "pingall"), (_ANSWERED, r"Results: 0% dropped"), (_LOST,), has_ptf=True),
    Exercise(
        "basic_tunnel",
        (
            *_listening("h2", "h3"),
            'h1 ./send.py 10.0.2.2 "plain"',
            'h1 ./send.py 10.0.3.3 "tunnelled" --dst_id 2',
            "sh sleep 2",
        ),
        (r"(?s)==> h2.log.*plain.*tunnelled.*==> h3.log",),
        (r"myTunnel_exact' has no attribute",),  # the table that students have to write
        ("h2.log", "h3.log"),
        has_ptf=True,
        absent=(r"mininet>",),
    ),
    Exercise(
        "calc", ('h1 sh -c "echo 4+3 | python3 calc.py"',), (r"> 4\+3\s+7\b",), (r"Didn't receive response",)
    ),
    Exercise(
        "ecn",
        _QUEUE,
        (r"tos += 0x3", r"tos += 0x1"),
        (r"tos += 0x1",),
        ("h2.log",),
        absent=(r"tos += 0x3",),
    ),
    Exercise(
        "firewall",
        (*_iperf("h1", "h3", "10.0.3.3"), *_iperf("h3", "h1", "10.0.1.1")),
        (r"10.0.1.1 to 10.0.3.3 ended 0", r"10.0.3.3 to 10.0.1.1 ended 124"),
        (r"10.0.1.1 to 10.0.3.3 ended 0", r"10.0.3.3 to 10.0.1.1 ended 0"),
    ),
    Exercise(
        "flowcache",  # the skeleton does not compile, since students have to declare the headers first
        (
            _CONTROLLER,
            "h1 timeout 90 sh -c 'until ping -c 1 -W 1 10.0.2.2 > /dev/null; do :; done'",
            "h1 ping -c 5 -W 1 h2",
        ),
        (r"[45] received", r"Received PacketIn message"),
        (r"error: .*opcode",),
        ("controller.log",),
        absent=(r"mininet>",),
    ),
    Exercise(
        "link_monitor",
        (
            *_listening("h1"),
            "h1 ./send.py > /dev/null 2>&1 &",
            "sh sleep 8",
            *_iperf("h1", "h4", "10.0.4.4"),
        ),
        (r"Switch \d+ - Port \d+: 0\.[1-9]\d* Mbps|Switch \d+ - Port \d+: [1-9]",),
        (r"==> h1.log",),
        ("h1.log",),
        absent=(r"Switch \d+ - Port \d+: (0\.[1-9]|[1-9])",),
    ),
    Exercise(
        "load_balance",
        (*_listening("h2", "h3"), *(f'h1 ./send.py 10.0.0.1 "P4 {n}"' for n in range(8)), "sh sleep 2"),
        (r"(?s)==> h2.log.*P4 \d.*==> h3.log.*P4 \d",),
        (r"==> h3.log",),
        ("h2.log", "h3.log"),
        absent=(r"(?s)==> h3.log.*P4 \d",),
    ),
    Exercise(
        "mri",
        _QUEUE,
        (r"qdepth += [1-9]", r"count += 2"),
        (r"got a packet",),
        ("h2.log",),
        absent=(r"qdepth += [1-9]",),
    ),
    Exercise(
        "multicast",
        ("h1 ping -c 2 -W 1 h2", "pingall"),
        (r"h1 -> h2 h3", r"2 received"),
        (r"h1 -> X X",),
    ),
    Exercise(
        "p4runtime",
        (
            _CONTROLLER,
            "sh timeout 90 sh -c 'until grep -q counters controller.log; do sleep 0.2; done'",
            "h1 ping -c 5 -W 1 h2",
        ),
        (r"[45] received",),
        (r" 0 received", r"TODO Install transit tunnel rule"),
        ("controller.log",),
    ),
    Exercise(
        "qos",
        (
            *_listening("h2"),
            'h1 ./send.py --p=UDP --des=10.0.2.2 --m="P4 is cool" --dur=2',
            'h1 ./send.py --p=TCP --des=10.0.2.2 --m="P4 is cool" --dur=2',
            "sh sleep 2",
        ),
        (r"tos += 0xb9", r"tos += 0xb1"),
        (r"(?s)==> h2.log.*tos += 0x1\s",),
        ("h2.log",),
        absent=(r"(?s)==> h2.log.*tos += 0xb[19]",),
    ),
    Exercise(
        "source_routing",
        (
            *_listening("h2"),
            'h1 sh -c "(echo 2 3 2 2 1; sleep 2; echo q) | ./send.py 10.0.2.2"',
            "sh sleep 2",
        ),
        (r"got a packet",),
        (r"==> h2.log",),
        ("h2.log",),
        absent=(r"(?s)==> h2.log.*got a packet",),
    ),
)


def run(exercise: Exercise, checkout: Path, course: Path, *, solved: bool) -> ExperimentOutcome:
    """Run the experiment of an exercise with its solution, or as it is for students."""
    with tempfile.TemporaryDirectory() as copied:
        place = _copied(exercise, checkout, Path(copied), solved=solved)
        output = run_inside(
            course, Path(copied), place, "make run", "\n".join([*exercise.experiment, "exit"]) + "\n"
        )
        for name in exercise.shown:
            path = place / name
            output += f"\n==> {name} <==\n{path.read_text(errors='replace') if path.exists() else ''}"
    if solved:
        return judge(output, exercise.solved)
    return judge(output, exercise.unsolved, exercise.absent)


def run_ptf(exercise: Exercise, checkout: Path, course: Path) -> ExperimentOutcome:
    """Run `make test` of an exercise twice in the same namespaces: a second run must not depend on the first."""
    with tempfile.TemporaryDirectory() as copied:
        place = _copied(exercise, checkout, Path(copied), solved=False)
        output = run_inside(course, Path(copied), place, "make test; make test", "")
    passed = len(re.findall(r"^OK$", output, re.MULTILINE))
    return ExperimentOutcome(output, [] if passed >= 2 else [f"no OK in {2 - passed} of 2 runs"])


def _copied(exercise: Exercise, checkout: Path, folder: Path, *, solved: bool) -> Path:
    """Return the folder of an exercise in a copy of what it needs of the checkout."""
    for part in ("utils", "bin", f"exercises/{exercise.name}"):
        shutil.copytree(checkout / part, folder / part, symlinks=True)
    place = folder / "exercises" / exercise.name
    if solved:
        for path in (place / "solution").iterdir():
            shutil.copy2(path, place)
    return place


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the table, and write the output of each run into `outputs` in the current folder."""
    parser = argparse.ArgumentParser(prog="tutorials", description="Run the exercises of p4lang/tutorials.")
    parser.add_argument("checkout", type=Path, help="checkout of p4lang/tutorials")
    parser.add_argument("course", type=Path, help="folder that fanin course has made")
    known = [exercise.name for exercise in EXERCISES]
    parser.add_argument("names", nargs="*", metavar="EXERCISE", help=f"of {', '.join(known)}; default: all")
    options = parser.parse_args(None if arguments is None else [*arguments])
    checkout, course, names = options.checkout, options.course.resolve(), options.names
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{unknown[0]}: no such exercise; there are {', '.join(known)}")
    if not (checkout / "exercises").is_dir():
        parser.error(f"{checkout}: is no checkout of p4lang/tutorials")
    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    print("| exercise | skeleton | solution | PTF, two runs |\n|---|---|---|---|", flush=True)
    failed = 0
    for exercise in EXERCISES:
        if names and exercise.name not in names:
            continue
        skeleton = run(exercise, checkout, course, solved=False)
        solution = run(exercise, checkout, course, solved=True)
        ptf = run_ptf(exercise, checkout, course) if exercise.has_ptf else None
        kinds = {"skeleton": skeleton, "solution": solution, "ptf": ptf}
        for kind, outcome in kinds.items():
            if outcome is not None:
                (outputs / f"{exercise.name}-{kind}.txt").write_text(outcome.output)
                failed += bool(outcome.differences)
        tests = "–" if ptf is None else "passes" if not ptf.differences else str(ptf)
        print(f"| {exercise.name} | {skeleton} | {solution} | {tests} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
