"""Ctrl-C, SIGTERM and SIGHUP under asyncio: clean-up is completed however often they arrive."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from fanin.testbed.sandbox import asked_to_stop, stop_signals

_T = TypeVar("_T")


def run_until_interrupted(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` as `asyncio.run` does; the first signal to stop cancels it, later ones are ignored while it cleans up.

    `asyncio.run` stops wherever it is at the second one, among half-closed connections. If a signal has come before,
    `main` does not begin: Python drops exceptions that are raised in a destructor or a callback.

    Raises:
        KeyboardInterrupt: SIGINT interrupted it; raised after clean-up.
        SystemExit: SIGTERM or SIGHUP interrupted it; raised after clean-up, with 128 and the signal's number.
        CancelledError: `main` was cancelled for another reason.
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
        for number, handler in before.items():  # the loop has restored the defaults
            # A second signal, which a shell sends to all processes of a job, would interrupt the caller's clean-up.
            again = number in came and number != signal.SIGINT
            signal.signal(number, signal.SIG_IGN if again else handler)
