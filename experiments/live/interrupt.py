"""Ctrl-C and asyncio: clean-up comes to its end however often it is pressed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_until_interrupted(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` as `asyncio.run` does; the first SIGINT cancels it, further ones do nothing while it cleans up.

    `asyncio.run` stops at the second one where it is, among half-closed connections.

    Raises:
        KeyboardInterrupt: after clean-up, if it was interrupted.
        CancelledError: `main` was cancelled by somebody else.
    """
    interrupted = False

    async def interruptible() -> _T:
        task = asyncio.current_task()
        assert task is not None

        def interrupt() -> None:
            nonlocal interrupted
            if not interrupted:
                interrupted = True
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
        return await main

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        if interrupted:
            raise KeyboardInterrupt from None
        raise
