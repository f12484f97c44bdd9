"""The networks of p4-learning and p4-utils, which p4-utils builds.

`python -m fanin.assurance.courses.p4_learning CHECKOUT COURSE [PART…]` starts the example networks and the solutions
of the exercises, runs the experiment of the exercise's README, and prints a table in Markdown. CHECKOUT is a folder
with p4-learning or p4-utils, and COURSE one that `fanin course` has made and that p4-utils was installed into. With
PART, only networks whose path contains one of the parts run. Each run has its own namespaces. It needs root.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from fanin.assurance.courses.experiment import ExperimentOutcome, judge, run_inside

_STARTED = (r"Switches programmed correctly", r"mininet>|Network stopped")
_FAILED = (r"Traceback", r"error in file", r"did not start", r"exited with error", r"ompilationError")
_REACHED = r"Results: 0% dropped"
_PINGALL = ("pingall", "pingall")  # twice: in the first round switches learn and hosts resolve addresses
_SCRIPTS = "sh sleep 15"  # p4-utils does not wait for the scripts that it starts
_RESERVATIONS = "sleep 5; echo add_reservation h1 h5 60 1; echo add_reservation h5 h1 60 1; sleep 2"
_ROUTED = ("sh python3 routing-controller.py > controller.log 2>&1", *_PINGALL)
_LEARNING = "sh python3 l2_learning_controller.py s1 {} > controller.log 2>&1 &"
# What to type in the network of an exercise's solution, and what that has to show. The first pattern of a path counts.
EXPERIMENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "01-Reflector/*": (
        ("h1 sh -c 'yes \"\" | timeout 20 python3 ../send_receive.py'",),
        r"A packet was reflected",
    ),
    "02-Repeater/*": ((_SCRIPTS, "h1 ping -c 3 -W 1 h2"), r"3 received, 0% packet loss"),
    "04-L2_Learning/*/network_cpu.py": ((_LEARNING.format("cpu"), _SCRIPTS, *_PINGALL), _REACHED),
    "04-L2_Learning/*/network_digest.py": ((_LEARNING.format("digest"), _SCRIPTS, *_PINGALL), _REACHED),
    "04-MPLS/*": ((_SCRIPTS, "h1 ping -c 3 -W 1 h2", "h1 ping -c 3 -W 1 h3"), r"(?s)3 received.*3 received"),
    "04-RSVP/*": (
        (
            f"sh ({_RESERVATIONS}) | timeout 30 python3 rsvp_controller.py",
            "h1 ping -c 3 -W 1 h5",
        ),
        r"(?s)Successful reservation.* 3 received",
    ),
    "07-Count-Min-Sketch/*": (
        (
            "sh python3 cm-sketch-controller.py --option set_hashes",
            "h1 python3 send.py --n-pkt 1000 --n-hh 2 --n-sfw 0 --p-hh 1",
            "sh python3 cm-sketch-controller.py --eps 0.1 --n 1000 --mod 28 --option decode",
        ),
        r"Packets sent and read by the cms: +[1-9]",
    ),
    "08-Simple_Routing/*": (_ROUTED, _REACHED),
    "09-Traceroutable/*": (_ROUTED, _REACHED),
    "11-Packet-Loss-Detection/*": (
        (
            "sh python3 packet-loss-controller.py --option run > controller.log 2>&1 &",
            _SCRIPTS,
            *_PINGALL,
        ),
        _REACHED,
    ),
    "12-Fast-Reroute/*": (
        ("sh timeout 30 python3 controller.py < /dev/null > controller.log 2>&1", *_PINGALL),
        _REACHED,
    ),
    "*": ((_SCRIPTS, *_PINGALL), _REACHED),
}
# What else is typed to start a network: what its README has the reader do or install first.
STARTED_WITH = {
    "adv-net/network.py": "python3 network.py default.traffic",
    "multiqueueing/network.py": "P4C_16_INCLUDE_PATH=$PWD python3 network.py",  # for its own v1model.p4
}
# What these networks need, and where p4-utils looks for it.
NEEDED = {
    "frrouters": ("FRRouting", Path("/usr/local/sbin/zebra")),
    "simple_fast_convergence": ("FRRouting", Path("/usr/local/sbin/zebra")),
    "tofino": ("a Tofino SDE", Path("/home/p4/bf-sde")),
}


def networks(checkout: Path) -> list[Path]:
    """Return the scripts of example networks and of the solutions of exercises, relative to the checkout."""
    scripts = (path.relative_to(checkout) for path in checkout.rglob("network*.py"))
    return sorted(
        path
        for path in scripts
        if path.name != "network_generator.py" and (path.parts[0] == "examples" or "solution" in path.parts)
    )


def run(network: Path, checkout: Path, course: Path) -> tuple[ExperimentOutcome, ExperimentOutcome | None]:
    """Start a network, and run the experiment of its exercise.

    Returns:
        Whether the network starts, and whether the experiment shows what it should. An example has none.
    """
    typed: tuple[str, ...] = ()
    shows = None
    if network.parts[0] == "exercises":
        path = "/".join(network.parts[1:])
        typed, shows = next(found for pattern, found in EXPERIMENTS.items() if fnmatch(path, pattern))
    with tempfile.TemporaryDirectory() as copied:
        exercise = Path(copied, *network.parts[:2])
        shutil.copytree(checkout.joinpath(*network.parts[:2]), exercise)
        place = Path(copied, network).parent
        command = STARTED_WITH.get("/".join(network.parts[1:]), f"python3 {network.name}")
        output = run_inside(course, Path(copied), place, command, "\n".join([*typed, "exit"]) + "\n")
        for log in place.glob("*.log"):
            output += f"\n==> {log.name} <==\n{log.read_text(errors='replace')}"
    started = judge("".join(output.partition("mininet>")[:2]), _STARTED, _FAILED)
    return started, None if shows is None else judge(output, (shows,))


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the table, and write the output of each run into `outputs` in the current folder."""
    parser = argparse.ArgumentParser(prog="p4_learning", description="Run the networks of p4-learning.")
    parser.add_argument("checkout", type=Path, help="checkout of p4-learning")
    parser.add_argument(
        "course", type=Path, help="folder that fanin course has made, with p4-utils installed"
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="part of a network's path; default: all networks"
    )
    options = parser.parse_args(None if arguments is None else [*arguments])
    checkout, course, parts = options.checkout, options.course.resolve(), options.parts
    outputs = Path("outputs")
    outputs.mkdir(exist_ok=True)
    print("| network | starts | experiment |\n|---|---|---|", flush=True)
    failed = 0
    for network in networks(checkout):
        if parts and not any(part in str(network) for part in parts):
            continue
        needed = next(
            (tool for name, (tool, place) in NEEDED.items() if name in network.parts and not place.exists()),
            None,
        )
        if needed is not None:
            print(f"| {network} | not tried: needs {needed} | – |", flush=True)
            continue
        started, experiment = run(network, checkout, course)
        (outputs / f"{str(network).replace('/', '-')}.txt").write_text(
            started.output + "\n" + (experiment or started).output
        )
        failed += bool(started.differences or (experiment is not None and experiment.differences))
        starts = "yes" if not started.differences else str(started)
        print(f"| {network} | {starts} | {'–' if experiment is None else experiment} |", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
