"""Ctrl-C, SIGTERM, SIGHUP and asyncio: clean-up comes to its end however often they come."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from fanin.testbed.sandbox import asked_to_stop, stop_signals

_T = TypeVar("_T")


def run_until_interrupted(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` as `asyncio.run` does; the first signal to stop cancels it, later ones do nothing while it cleans up.

    `asyncio.run` stops at the second one where it is, among half-closed connections. If a signal has come before,
    `main` does not begin: Python drops an exception that is raised in a destructor or a callback.

    Raises:
        KeyboardInterrupt: after clean-up, if SIGINT interrupted it.
        SystemExit: after clean-up, if SIGTERM or SIGHUP did; with 128 and the signal's number.
        CancelledError: `main` was cancelled by somebody else.
    """
    came: list[int] = []

    async def interruptible() -> _T:
        task = asyncio.current_task()
        assert task is not None

        def interrupt(number: int) -> None:
            if not came:
                task.cancel()
            came.append(number)

        for number in stop_signals():
            asyncio.get_running_loop().add_signal_handler(number, interrupt, number)
        return await main

    if asked_to_stop:
        main.close()
        raise KeyboardInterrupt if asked_to_stop[0] == signal.SIGINT else SystemExit(128 + asked_to_stop[0])
    before = {number: signal.getsignal(number) for number in stop_signals()}
    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if not came:
            raise
        raise KeyboardInterrupt if came[0] == signal.SIGINT else SystemExit(128 + came[0]) from None
    finally:
        for number, handler in before.items():  # the loop has left the default ones
            # A second one, as a shell sends to all of a job, would end what the caller cleans up.
            again = number in came and number != signal.SIGINT
            signal.signal(number, signal.SIG_IGN if again else handler)
