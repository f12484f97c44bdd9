"""Ctrl-C in the middle of asynchronous work, and again while it cleans up."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from fanin.testbed import sandbox
from fanin.testbed.interrupt import run_until_interrupted


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_result_is_that_of_the_coroutine() -> None:
    async def main() -> int:
        await asyncio.sleep(0)
        return 7

    assert run_until_interrupted(main()) == 7


def test_clean_up_goes_on_however_often_it_is_interrupted() -> None:
    seen = []

    async def main() -> None:
        try:
            interrupt()
            await asyncio.Event().wait()
        finally:
            for step in range(3):
                interrupt()
                await asyncio.sleep(0)
                await asyncio.get_running_loop().run_in_executor(None, seen.append, step)

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(main())
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_to_stop_clean_up_too_and_say_which_it_was(number: signal.Signals) -> None:
    seen = []

    async def main() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
            seen.append("clean")

    before = signal.getsignal(number)
    try:
        with pytest.raises(SystemExit) as ended:
            run_until_interrupted(main())
        os.kill(os.getpid(), number)  # while the caller cleans up
    finally:
        signal.signal(number, before)
    assert (ended.value.code, seen) == (128 + number, ["clean"])


def test_a_signal_that_nohup_ignores_stays_ignored() -> None:
    async def main() -> int:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0)
        return 7

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_until_interrupted(main()) == 7
    finally:
        signal.signal(signal.SIGHUP, before)


def test_afterwards_ctrl_c_interrupts_again() -> None:
    async def main() -> None: ...

    run_until_interrupted(main())
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_a_cancellation_of_its_own_is_not_taken_for_ctrl_c() -> None:
    async def main() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_until_interrupted(main())


@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_signal_whose_exception_was_lost_ends_what_would_begin_after_it(
    number: signal.Signals, ends: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception raised in a destructor is printed and dropped."""

    async def main() -> None:
        raise AssertionError("it has begun")

    monkeypatch.setattr(sandbox, "asked_to_stop", asked := [])
    monkeypatch.setattr("fanin.testbed.interrupt.asked_to_stop", asked)
    before = signal.getsignal(number)
    try:
        with pytest.raises(ends):
            sandbox.stop(number)
    finally:
        signal.signal(number, before)
    with pytest.raises(ends):
        run_until_interrupted(main())
