"""Nothing that a packet or a program contains makes the generated code or the runtime reach outside its memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from native.cache import cache_directory
from p4switch.fuzz.sanitizers import sanitized_environment

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
SESSION = [sys.executable, str(Path(__file__).with_name("sanitized_session.py")), "1"]
LINKS = [
    *(sys.executable, "-m", "pytest", "-q", "-x"),
    *(str(TESTS / "runtime" / name) for name in ("test_link.py", "test_pace.py")),
]
BOUNDS = [*LINKS[:5], *(str(path) for path in sorted(TESTS.glob("*/test_bounds*.py")))]


@pytest.mark.parametrize(
    ("command", "last"),
    [pytest.param(SESSION, "no finding", marks=pytest.mark.long), (LINKS, "passed"), (BOUNDS, "passed")],
)
def test_under_address_and_undefined_behaviour_sanitizers(command: list[str], last: str) -> None:
    environment = sanitized_environment(cache_directory().parent)
    if environment is None:
        pytest.skip("the compiler comes without libasan and libubsan")
    environment["PYTHONPATH"] = str(Path(__file__).parents[3])
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    assert last in done.stdout.splitlines()[-1]
