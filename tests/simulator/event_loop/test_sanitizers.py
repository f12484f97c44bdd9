"""Nothing that programs, workers or hosts do makes the loop of virtual time in C reach outside its memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sanitized import last_line_of_sanitized


@pytest.mark.slow
def test_under_address_and_undefined_behaviour_sanitizers() -> None:
    session = Path(__file__).with_name("sanitized_session.py")
    assert last_line_of_sanitized([sys.executable, session]) == "no finding"
