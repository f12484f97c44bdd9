"""Small programs after each phase, as text, beside what is expected.

    python -m tests.p4compiler.test_golden

writes what they are now; `git diff` then shows what a change has done to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.p4compiler import PHASE_NAMES, dump_after

GOLDEN = Path(__file__).parent / "golden"


def cases() -> Iterator[tuple[Path, str]]:
    for program in sorted(GOLDEN.glob("*/program.p4")):
        for phase in PHASE_NAMES:
            yield program, phase


@pytest.mark.parametrize(
    ("program", "phase"), [pytest.param(p, n, id=f"{p.parent.name}-{n}") for p, n in cases()]
)
def test_a_phase_makes_what_it_has_made_before(program: Path, phase: str) -> None:
    assert dump_after(phase, program)[0] == (program.parent / f"{phase}.txt").read_text()


if __name__ == "__main__":
    for program, phase in cases():
        (program.parent / f"{phase}.txt").write_text(dump_after(phase, program)[0])
