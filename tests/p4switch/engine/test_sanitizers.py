"""Nothing that a packet or a program contains makes the generated code or the runtime reach outside its memory."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.sanitized import last_line_of_sanitized

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
SESSION = [sys.executable, str(Path(__file__).with_name("sanitized_session.py")), "1"]
TESTED = [
    *(sys.executable, "-m", "pytest", "-q", "-x"),
    *(str(TESTS / "runtime" / name) for name in ("test_link.py", "test_pace.py")),
    *(str(path) for path in sorted(TESTS.glob("*/test_bounds*.py"))),
]


@pytest.mark.parametrize(
    ("command", "last"),
    [
        pytest.param(SESSION, "no finding", marks=pytest.mark.long),
        pytest.param(TESTED, "passed", marks=pytest.mark.few(0)),
    ],
)
def test_under_address_and_undefined_behaviour_sanitizers(command: list[str], last: str) -> None:
    assert last in last_line_of_sanitized(command)
