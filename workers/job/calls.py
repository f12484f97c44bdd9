"""The calls that a worker makes: which one it is in, who is waited for, and that none follows one that has failed.

Sums are matched by their order only. If a worker left out a call after an error, all its later ones would be summed
with other calls of the others. So whatever a call raises, at any worker, ends all calls of the job. The worker makes no
other one, and the job service passes the error on to the others.

A worker that is in one call for a while reports it. The job service compares the reports, and where two differ it ends
the calls of the job. After some seconds the worker asks who is waited for. Workers that are in a call answer; those
that compute, are stopped, or hang do not.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from typing import Any, TypeVar, cast

from fanin.workers.collective import CollectiveError

SLOW_SECONDS = 5.0  # in a call, after which a worker asks who is waited for, and asks again
_REPORT_SECONDS = 0.25  # in a call, after which a worker reports it
_LONGEST_ERROR = 1000  # characters of an error that are passed on

_Call = TypeVar("_Call", bound=Callable[..., Any])


class AbortedError(CollectiveError):
    """A call failed at some worker, so no worker of the job can make another; the text names the worker and the error.

    The job service has told all workers, or will.
    """


class Calls:
    """The calls of one worker, and what the job service tells it about those of the others.

    Args:
        say: Sends a message to the job service.
        rank: The worker's number.
        count: How many calls it need not make, since it joins a job that has begun; 0 elsewhere.

    Attributes:
        count: Calls begun so far.
        failure: Why there are no more calls; empty while there are.
        slow: The workers that are waited for in this call; empty if none is known.
    """

    def __init__(self, say: Callable[[Mapping[str, Any]], None], rank: int, count: int = 0) -> None:
        self.rank = rank
        self.count = count
        self.failure = ""
        self.slow = ""
        self._say = say
        self._what = ""
        self._began = self._asked = time.monotonic()
        self._reported = True

    def begin(self, what: str, *, needs_others: bool = True) -> int:
        """Enter a call, and return its number, from 1 on; all workers number their calls alike.

        Args:
            what: The operation, its arguments, types and shapes, in words that all workers must have alike.
            needs_others: Whether anything is sent. If not, the others may leave it out, and it has no number.

        Raises:
            AbortedError: No call can be made.
        """
        if self.failure:
            raise AbortedError(self.failure)
        self.count += needs_others
        self.slow = ""
        self._what = what
        self._began = self._asked = time.monotonic()
        self._reported = False
        return self.count

    def report(self) -> None:
        """Report the call that this worker is in, once."""
        if not self._reported:
            self._reported = True
            self._say({"call": {"number": self.count, "what": self._what}})

    def look(self) -> None:
        """Report the call, or ask who is waited for, if it is time to. To be called again and again in a call."""
        now = time.monotonic()
        if now - self._began >= _REPORT_SECONDS:
            self.report()
        if now - self._asked >= SLOW_SECONDS:
            self._asked = now
            self._say({"waiting": self.count})

    def hear(self, message: Any) -> None:
        """Take a message of the job service, unless it is for others here.

        Raises:
            AbortedError: A call has failed.
        """
        match message:
            case {"aborted": str(why)}:
                self.failure = self.failure or why
                raise AbortedError(self.failure)
            case {"where": None}:
                self._say({"at": self.count})
            case {"slow": {"at": int(number), "workers": str(workers), "told": bool(told)}} if (
                number == self.count
            ):
                if workers and not (told or self.slow):
                    seconds = time.monotonic() - self._began
                    since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
                    print(f"fanin: waiting for {workers} since {since}, {seconds:.0f} s", file=sys.stderr)
                self.slow = workers

    def abort(self, error: BaseException, number: int, what: str) -> None:
        """Make no more calls, since this one has raised `error`, and let the others know. The first error counts.

        Args:
            error: What was raised.
            number: The call's.
            what: The call, in words.
        """
        if self.failure:
            return
        if isinstance(error, AbortedError):
            self.failure = str(error)
            return
        said = f"{type(error).__name__}: {error}".removesuffix(": ")[:_LONGEST_ERROR]
        self.failure = f"rank {self.rank}, this process, failed in call {number}, {what}: {said}"
        with suppress(OSError):  # without a job service the others wait until they give up
            self._say({"failed": {"call": number, "what": what, "error": said}})


def collective(call: _Call) -> _Call:
    """Make a function a call that other workers take part in: once it has raised anything, there is no call after it.

    Every public function that is one has to be decorated with this. Its first argument has `calls`.
    """

    @wraps(call)
    def calling(caller: Any, *arguments: Any, **named: Any) -> Any:
        calls: Calls = caller.calls
        if calls.failure:
            raise AbortedError(calls.failure)
        try:
            return call(caller, *arguments, **named)
        except BaseException as error:
            calls.abort(error, calls.count + 1, call.__name__)
            raise

    return cast("_Call", calling)
