"""Time limits, after which a process counts as stuck.

While a process starts, it may take as long as it computes. Later limits are in seconds of an ordinary machine, all
stretched by one factor: as much as starting took longer here, times FANIN_PATIENCE.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Sequence

from fanin.testbed.process_stats import process_stats
from fanin.topologies.errors import NetworkError

VARIABLE = "FANIN_PATIENCE"

# Seconds that an ordinary machine needs to start a network's switches.
_ORDINARY_START = 3.0
_MAX_FACTOR = 20.0

# Limits of a process that starts. _IDLE: seconds in which it may use less than the share _NEXT_TO_NOTHING of a core.
# _COMPUTING: seconds of processor time, after which it is in an endless loop. _START: seconds in all (on an emulated
# machine with a busy host, workers were not up after 900 s, with 42 to 67 s of processor time).
_IDLE = 30.0
_NEXT_TO_NOTHING = 0.01
_COMPUTING = 900.0
_START = 7200.0

_RESTARTS, _RESTARTS_WITHIN = 3, 60.0  # number of restarts, within so many seconds

_LOOK_SECONDS = 1.0  # between checks of how much a process has computed


def setting() -> float:
    """Return FANIN_PATIENCE, by which every limit is multiplied.

    Raises:
        NetworkError: It is not a positive number.
    """
    text = os.environ.get(VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise NetworkError(f"{VARIABLE} is {text!r}; set it to a positive number, such as 3, or unset it")
    return factor


def proved(start: float) -> float:
    """Return the factor for a machine on which the switches were up after `start` seconds.

    Raises:
        NetworkError: See setting.
    """
    return setting() * min(max(start / _ORDINARY_START, 1.0), _MAX_FACTOR)


class Restarts:
    """Limit on restarts of something that is started again when it ends: 3 times within 60 s."""

    def __init__(self) -> None:
        self._lately: list[float] = []

    def count(self, how: str) -> None:
        """Count an end, described by `how`, after which it is to be started again.

        Raises:
            NetworkError: It has ended too often.
        """
        now = time.monotonic()
        self._lately = [each for each in self._lately if now - each < _RESTARTS_WITHIN]
        if len(self._lately) == _RESTARTS:
            raise NetworkError(
                f"{how}\nit was started again {_RESTARTS} times within {_RESTARTS_WITHIN:g} s, and has ended each time"
            )
        self._lately.append(now)


class Starting:
    """The start of a process, begun at `now` (seconds of any clock).

    Raises:
        NetworkError: See setting.
    """

    def __init__(self, now: float) -> None:
        factor = setting()
        self._idle = _IDLE * factor
        self._computing = _COMPUTING * factor
        self._end = now + _START * factor
        self._moved = now
        self._computed = 0.0

    def stuck(self, now: float, computed: float) -> bool:
        """Return whether to stop waiting for it, given the seconds of processor time that it has used by `now`."""
        if computed - self._computed >= self._idle * _NEXT_TO_NOTHING:
            self._moved, self._computed = now, computed
        return computed >= self._computing or now >= min(self._moved + self._idle, self._end)


def await_process(process: int, output: int | None = None) -> bool:
    """Wait until a child process has ended or, given its `output`, until there is something to read.

    Args:
        process: The id of a child that nobody has waited for yet.
        output: A file descriptor; its end of file counts as something to read.

    Returns:
        Whether there is something to read; False if the process has ended.

    Raises:
        NetworkError: The process is stuck: it neither answers nor computes, as one that was stopped.
    """
    starting, handle = Starting(time.monotonic()), os.pidfd_open(process)
    try:
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        if output is not None:
            waiting.register(output, select.POLLIN)
        while True:
            if ready := [file for file, _ in waiting.poll(_LOOK_SECONDS * 1000)]:
                return output in ready
            (computed,) = computed_seconds([process])
            if starting.stuck(time.monotonic(), computed):
                raise NetworkError(
                    f"process {process} does not answer ({computed:.0f} s of processor time so far; {VARIABLE} "
                    "stretches time limits)"
                )
    finally:
        os.close(handle)


def computed_seconds(processes: Sequence[int]) -> list[float]:
    """Return the processor time of each of `processes`, with all that it has started; 0 if it is gone."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for pid, fields in process_stats():
        children.setdefault(int(fields[1]), []).append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))  # including those of its reaped children
    families = [[process] for process in processes]
    for family in families:
        for member in family:
            family += children.get(member, ())
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    return [sum(ticks.get(member, 0) for member in family) / ticks_per_second for family in families]
