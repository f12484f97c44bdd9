"""Which ports are up."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.live
def test_a_port_said_to_be_down_has_the_time_at_which_it_went_down() -> None:
    session = f"tests.p4switch.ports.{Path(__file__).with_name('status_session.py').stem}"
    command = ["unshare", "-rn", sys.executable, "-m", session]
    said = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert said.stdout.split() == ["False", "True"]
