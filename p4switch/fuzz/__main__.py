"""`python -m p4switch.fuzz`: the same as `fanin fuzz`, without fanin."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from p4switch.fuzz.campaign import Fuzzed, NoSanitizersError, fuzz, repeat


def main() -> int:
    """Returns the exit status: 1 if a case fails."""
    parser = argparse.ArgumentParser(
        prog="python -m p4switch.fuzz", description=sys.modules["p4switch.fuzz"].__doc__
    )
    parser.add_argument("--seconds", type=float, default=600, help="for how long (default 600)")
    parser.add_argument("--cases", type=int, help="how many programs, in place of --seconds")
    parser.add_argument("--first-seed", type=int, default=0, help="of the first program (default 0)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    parser.add_argument(
        "--results", type=Path, default=Path("results/fuzz"), help="where a failing case is written"
    )
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="run a case that was written")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # leaves nothing behind either
    try:
        if options.repeat:
            said = repeat(options.repeat)
            print(said or "It passes.")
            return int(said is not None)
        seconds = None if options.cases else options.seconds
        done = fuzz(options.first_seed, options.cases, seconds, options.jobs, options.results, _show)
    except NoSanitizersError as error:
        sys.exit(f"p4switch.fuzz: {error}")
    except KeyboardInterrupt:
        sys.exit("p4switch.fuzz: interrupted; nothing is left behind")
    print(f"\n{done.cases} programs, of which the switch took {done.taken}")
    if done.failed is None:
        print("No finding.")
        return 0
    seed, said = done.failed
    print(f"seed {seed} fails:\n{said}\nagain: python -m p4switch.fuzz --repeat {done.path}")
    return 1


def _show(done: Fuzzed) -> None:
    if sys.stdout.isatty():
        print(f"\r{done.cases} programs", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
