"""A host that can only forge ICMP messages ends no all-reduce (RFC 1122, 4.1.3.3; RFC 8085, 5.2)."""

import subprocess
import sys
from pathlib import Path

import pytest

from fanin.testbed.patience import setting
from fanin.workers.engines import native

ROOT = Path(__file__).parents[2]


@pytest.mark.live
@pytest.mark.parametrize("passes", ["C", "numpy"])
def test_a_forged_icmp_message_of_any_kind_counts_as_loss_at_most(passes: str) -> None:
    if passes == "C" and native.library() is None:
        pytest.skip("no C compiler")
    session = ["unshare", "-r", "-n", sys.executable, "-m", "tests.workers.icmp_session", passes]
    done = subprocess.run(
        session, cwd=ROOT, capture_output=True, text=True, timeout=300 * setting(), check=False
    )
    assert done.returncode == 0, done.stderr
