"""The calls that a worker makes: which one it is in, who is waited for, and that none follows a failed one.

Sums are matched by their order only. If a worker left out a call after an error, all its later calls would be summed
with different calls of the others. Therefore an error in a call, at any worker, ends all calls of the job. The worker
makes no further call, and the job service passes the error on to the others.

A worker that stays in one call for a while reports it. The job service compares the reports, and ends the calls of the
job if two of them differ. After some seconds the worker asks who is waited for. Workers that are in a call answer;
workers that compute, are stopped, or hang do not.

About once a second it also sends the times of calls that have ended, from which `fanin why --slow` finds what makes a
job slow.
"""

from __future__ import annotations

import math
import os
import sys
import sysconfig
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

from fanin.native.text import printable
from fanin.workers.collective import CollectiveError
from fanin.workers.job.environment import STOPPED_BY

# Time in a call after which a worker asks who is waited for; also the interval between questions.
SLOW_SECONDS = 5.0
_REPORT_SECONDS = 0.25  # time in a call after which a worker reports the call
_LONGEST_ERROR = 1000  # characters of an error that are passed on
_TIMES_SECONDS = 1.0  # between two messages with the times of calls
_BLOCK = 64  # consecutive calls whose times are kept
# Where code is that is not the user's: fanin's, Python's, and that of installed packages.
_OTHERS = (str(Path(__file__).parents[2]), "<", *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))
_LONGEST_WHAT = 100  # characters of a call in such a message, which keep it far smaller than a socket buffer

_Call = TypeVar("_Call", bound=Callable[..., Any])


class AbortedError(CollectiveError):
    """The failure of a call at some worker, after which no worker of the job can make another call.

    The text names the worker and the error. The job service has told all workers, or will do so.
    """


class RefusedError(CollectiveError):
    """The refusal of a call for its arguments, before anything was sent. If all workers refuse it, others can follow.

    Attributes:
        counted: Whether the call has its number.
    """

    counted = False


class Calls:
    """The calls of one worker, and what the job service reports about those of the others.

    Args:
        send: Sends a message to the job service.
        rank: The worker's number.
        count: Number of earlier calls of a job that the worker joins after the job has begun; otherwise 0.
        send_or_drop: Sends a message that nobody waits for, or drops it; by default it is dropped.

    Attributes:
        count: Calls begun so far.
        refused: How many of them were refused before anything was sent.
        waits: Since when the program waits for a call in the background, in seconds of time.monotonic(); None if it
            does not.
        failure: Why no more calls can be made; empty while they can.
        causes: Ranks of the workers whose call has failed, or is another one than most others'.
        slow: The workers that are waited for in this call; empty if none is known.
    """

    def __init__(
        self,
        send: Callable[[Mapping[str, Any]], None],
        rank: int,
        count: int = 0,
        send_or_drop: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        self.rank = rank
        self.count = count
        self.refused = 0
        self.waits: float | None = None
        self.failure = ""
        self.causes: frozenset[int] = frozenset()
        self.slow = ""
        self._send = send
        self._what = ""
        self._began = self._asked = time.monotonic()
        self._reported = True
        self._send_or_drop = send_or_drop
        self._numbered = False
        self._times: deque[tuple[int, str, float, float | None, float, float]] = deque(maxlen=2 * _BLOCK)
        self._every = _BLOCK  # of so many consecutive calls, the times of the first _BLOCK are kept
        self._sent = self._began
        self._sent_count = count

    def begin(self, what: str, *, needs_others: bool = True) -> int:
        """Enter a call and return its number, from 1 on; all workers number their calls alike.

        Args:
            what: The operation, its arguments, types and shapes, in words that must be the same at all workers.
            needs_others: Whether anything is sent. If not, the other workers may leave the call out, and it gets no
                number.

        Raises:
            AbortedError: If no more calls can be made.
        """
        if self.failure:
            raise AbortedError(self.failure)
        self.count += needs_others
        self.slow = ""
        self._what = what
        self._began = self._asked = time.monotonic()
        self._reported = False
        self._numbered = needs_others
        return self.count

    def refuse(self, error: RefusedError, what: str) -> None:
        """Count a call that is refused before anything was sent, and notify the job service.

        The job service ends the calls of the job if another worker waits in this call. The call uses up a number:
        otherwise the worker's next call would be combined with this one of the others.

        Args:
            error: Why it is refused.
            what: The operation.

        Raises:
            AbortedError: If no more calls can be made.
        """
        self.begin(what)
        self.refused += 1
        self._reported = True
        with suppress(OSError):
            self._send({"refused": {"call": self.count, "what": what, "error": _text(error)}})

    def end(self, submitted: float | None = None) -> None:
        """Leave a call that has succeeded.

        Args:
            submitted: When the program made the call, in seconds of time.monotonic(). None if it has waited for it
                since it began.
        """
        now, began = time.monotonic(), self._began
        if self._numbered and self.count % self._every < _BLOCK:
            self._times.append(
                (self.count, self._what, began, began, began, now)
                if submitted is None
                else (self.count, self._what, submitted, self.waits, began, now)
            )
        if now - self._sent >= _TIMES_SECONDS:
            self._send_times(now)

    def _send_times(self, now: float) -> None:
        """Send the times that are kept, and choose which calls to keep them of.

        They are those of the same calls at all workers, up to a power of two, without any agreement.
        """
        blocks = (self.count - self._sent_count) / (now - self._sent) * _TIMES_SECONDS / _BLOCK
        self._every = _BLOCK << max(0, math.ceil(math.log2(max(1.0, blocks))))
        self._sent, self._sent_count = now, self.count
        epoch = time.time() - now
        times = [
            {
                "number": number,
                "what": what[:_LONGEST_WHAT],
                "submitted": epoch + submitted,
                "waited": None if waited is None else epoch + waited,
                "began": epoch + began,
                "ended": epoch + ended,
            }
            for number, what, submitted, waited, began, ended in self._times
        ]
        self._times.clear()
        self._send_or_drop({"times": {"calls": times}})

    def report(self) -> None:
        """Report the call that this worker is in, once."""
        if not self._reported:
            self._reported = True
            self._send({"call": {"number": self.count, "what": self._what}})

    def look(self) -> None:
        """Report the call, or ask who is waited for, if it is time to; to be called repeatedly during a call."""
        now = time.monotonic()
        if now - self._began >= _REPORT_SECONDS:
            self.report()
        if now - self._asked >= SLOW_SECONDS:
            self._asked = now
            self._send({"waiting": self.count})

    def receive(self, message: Any) -> None:
        """Process a message of the job service; messages for other receivers are ignored.

        Raises:
            AbortedError: If a call has failed.
        """
        match message:
            case {"aborted": str(why), "ranks": list(ranks)}:
                if not self.failure:
                    self.failure, self.causes = why, frozenset(ranks)
                raise AbortedError(self.failure)
            case {"where": None}:
                self._send({"at": self.count})
            case {"slow": {"at": int(number), "workers": str(workers), "told": bool(told)}} if (
                number == self.count
            ):
                if workers and not (told or self.slow):
                    seconds = time.monotonic() - self._began
                    since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
                    print(f"fanin: waiting for {workers} since {since}, {seconds:.0f} s", file=sys.stderr)
                self.slow = workers

    def abort(self, error: BaseException, number: int, what: str) -> None:
        """Make no more calls, since this one has raised `error`, and notify the others. Only the first error counts.

        Args:
            error: The error.
            number: The call's number.
            what: The call, in words.
        """
        if self.failure:
            return
        if isinstance(error, AbortedError):
            self.failure = str(error)
            return
        said = _text(error)
        self.failure = f"rank {self.rank}, this process, failed in call {number}, {what}: {said}"
        self.causes = frozenset((self.rank,))
        with suppress(OSError):  # without a job service the others wait until they give up
            self._send({"failed": {"call": number, "what": what, "error": said}})


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")[:_LONGEST_ERROR]


def shorten_tracebacks(calls: Calls) -> None:
    """Print one line instead of a traceback if the program ends with the failure of another worker.

    The only traceback of the job is then that of the worker that failed. Exceptions with other texts are
    printed as before.

    Args:
        calls: The calls of this worker.
    """
    usual = sys.excepthook

    def print_error(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        # PyTorch turns errors into its own, with the same text.
        if not calls.failure or calls.rank in calls.causes or calls.failure not in str(error):
            usual(kind, error, trace)
            return
        frames = [frame for frame, _ in traceback.walk_tb(trace)]
        code = next((f for f in reversed(frames) if not f.f_code.co_filename.startswith(_OTHERS)), frames[0])
        place = f"{code.f_code.co_filename}:{code.f_lineno}"
        print(f"{place}: rank {calls.rank} stopped: {printable(calls.failure)}", file=sys.stderr)
        if file := os.environ.get(
            STOPPED_BY
        ):  # `fanin launch` then reports those workers, which may end later
            with suppress(OSError):
                Path(file).write_text(" ".join(map(str, calls.causes)))

    sys.excepthook = print_error


def collective(call: _Call) -> _Call:
    """Make a function a call that other workers take part in: after it has raised an error, no call can follow.

    After a RefusedError calls can follow. Every public function that is such a call must have this decorator. Its first
    argument must have an attribute `calls`, and a method `refuse` if it raises RefusedError.
    """

    @wraps(call)
    def calling(caller: Any, *arguments: Any, **named: Any) -> Any:
        calls: Calls = caller.calls
        if calls.failure:
            raise AbortedError(calls.failure)
        try:
            return call(caller, *arguments, **named)
        except RefusedError as error:
            if not error.counted:
                error.counted = True
                caller.refuse(error, call.__name__)
            raise
        except BaseException as error:
            calls.abort(error, calls.count + 1, call.__name__)
            raise

    return cast("_Call", calling)
