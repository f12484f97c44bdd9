"""The loop of virtual time in C stays within its memory, and its threads do not disturb one another."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sanitized import last_line_of_sanitized, last_line_of_threads


@pytest.mark.slow
def test_under_address_and_undefined_behaviour_sanitizers() -> None:
    session = Path(__file__).with_name("sanitized_session.py")
    assert last_line_of_sanitized([sys.executable, session]) == "no finding"


@pytest.mark.slow
@pytest.mark.few(0)
def test_under_the_thread_sanitizer() -> None:
    session = Path(__file__).with_name("threaded_session.py")
    assert last_line_of_threads([sys.executable, session]) == "no finding"
