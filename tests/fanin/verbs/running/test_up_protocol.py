"""`fanin up --protocol`: jobs use the protocol's program and workers, or are refused with a reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fanin.command import run
from tests.fanin.network import SMALL, TIMEOUT, Up, launch

live = pytest.mark.live

# Sums of float32 go through the switches. Integers must be exact, and so use the ring here, as objects do.
SUMS = """
import fanin, numpy as np
comm = fanin.init()
x = np.where(np.arange(3000) < 500, 0, comm.rank + 1).astype(np.float32)
for _ in range(3):
    assert np.allclose(comm.allreduce(x), 3 * (x > 0), atol=1e-5)
numbers = np.arange(10) * 10**6
assert (comm.allreduce(numbers * (comm.rank + 1)) == 3 * numbers).all()
comm.barrier()
print("right")
"""
TOO_LARGE = """
import fanin, numpy as np
comm = fanin.init()
comm.allreduce(np.full(3, 17.0, np.float32))
"""
ENDLESS = """
import fanin, numpy as np
comm = fanin.init()
print("begun", flush=True)
while True:
    comm.allreduce(np.ones(50_000, np.float32))
"""
GROUPS = "import fanin; fanin.init(min_workers=2)"


@pytest.fixture(scope="module", params=["switchml", "omnireduce"])
def up(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with Up(tmp_path_factory.mktemp(request.param), *SMALL, "--protocol", request.param) as network:
        yield network


def _script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


@live
def test_sums_of_a_job_are_right(up: Up, tmp_path: Path) -> None:
    done = launch(up, _script(tmp_path, SUMS))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("right") == 2


@live
def test_what_the_protocol_cannot_sum_is_refused_with_its_reason(up: Up, tmp_path: Path) -> None:
    done = launch(up, _script(tmp_path, TOO_LARGE))
    assert done.returncode == 1
    assert "sends magnitudes up to 16: clip or scale the input" in done.stderr


@live
def test_a_job_that_loses_its_lease_ends_with_the_reason(up: Up, tmp_path: Path) -> None:
    """It does not continue with the ring: others may lack results that only fanin's own worker keeps."""
    job = up.fanin("launch", "--job", "first", _script(tmp_path, ENDLESS))
    assert job.stdout is not None
    assert job.stdout.readline().endswith("begun\n")
    assert run("jobs", "--revoke", "first", environment=up.environment).returncode == 0
    _, errors = job.communicate(timeout=TIMEOUT)
    assert job.returncode == 1
    assert "the job has lost its lease: its lease was revoked" in errors


@live
def test_a_job_in_groups_is_refused(up: Up, tmp_path: Path) -> None:
    done = launch(up, _script(tmp_path, GROUPS))
    assert done.returncode == 1
    assert "a job with min_workers needs fanin's own protocol, and this network has" in done.stderr


@live
@pytest.mark.parametrize(
    ("protocol", "why"),
    [
        ("atp", "it has a parameter server"),
        ("majority", "its results are not sums"),
        ("none", "no such folder"),
    ],
)
def test_a_protocol_that_jobs_cannot_use_is_refused(tmp_path: Path, protocol: str, why: str) -> None:
    done = run("up", *SMALL, "--protocol", protocol, "--logs", tmp_path / "logs", cwd=tmp_path)
    assert done.returncode == 2
    assert why in done.stderr
    assert "fanin, canary, omnireduce, switchml" in done.stderr or protocol == "none"
