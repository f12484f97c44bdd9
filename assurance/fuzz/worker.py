"""The process in which cases run, `python -m fanin.assurance.fuzz.worker SEED COUNT` or `… FILE`: a finding ends it.

It prints the seed of each case before it runs, and whether the switch accepted the program. A case that computes for
too long also ends it, with a traceback.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
from pathlib import Path

from fanin.assurance.fuzz.case import FuzzCase

PATIENCE = 60  # seconds of processor time, without the compiler's


def main(arguments: list[str]) -> None:
    """Run cases, given the first seed and their number, or the file of a case."""
    faulthandler.register(signal.SIGPROF, chain=True)
    if len(arguments) == 1:
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        FuzzCase.read(Path(arguments[0])).run()
        return
    first, count = map(int, arguments)
    for seed in range(first, first + count):
        print("case", seed, flush=True)
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)
        print("taken" if FuzzCase.random(seed).run() else "refused", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
