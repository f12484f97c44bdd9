"""Who is waited for: a worker that has waited for a while asks the job service, and it asks the others.

Who is in an operation, or waits for one, answers where it is. Who computes, is stopped, or hangs does not.
"""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

SLOW_SECONDS = 5.0  # in an operation, after which one asks, and asks again


class Waiting:
    """One worker's part. slow: who is waited for in this operation; empty: nobody, as far as is known.

    say: sends a message to the job service.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None]) -> None:
        self.slow = ""
        self._say = say
        self._number = 0
        self._began = self._asked = time.monotonic()

    def begin(self, number: int | None = None) -> None:
        """An operation, the next one where it has no `number`, of those that all workers have in the same order."""
        self.slow = ""
        self._number = self._number + 1 if number is None else number
        self._began = self._asked = time.monotonic()

    def look(self) -> None:
        """To be called again and again in an operation."""
        if time.monotonic() - self._asked >= SLOW_SECONDS:
            self._asked = time.monotonic()
            self._say({"waiting": self._number})

    def hear(self, message: Any) -> None:
        """A message of the job service, of which some are for others here."""
        match message:
            case {"where": None}:
                self._say({"at": self._number})
            case {"slow": {"at": int(number), "workers": str(workers), "told": bool(told)}} if (
                number == self._number
            ):
                if workers and not (told or self.slow):
                    seconds = time.monotonic() - self._began
                    since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
                    print(f"fanin: waiting for {workers} since {since}, {seconds:.0f} s", file=sys.stderr)
                self.slow = workers
