"""A campaign on all cores ends with a signal to its group of processes, as `timeout` and a terminal send them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CONTROLLER = """
import os
with open({fifo!r}, "w") as file:
    print(os.getpid(), file=file)
from fanin.controller.plan import plan_forwarding
"""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_all_its_processes_ends_it_without_a_traceback(
    number: int, status: int, tmp_path: Path
) -> None:
    fifo, controller = tmp_path / "fifo", tmp_path / "controller.py"
    os.mkfifo(fifo)
    controller.write_text(CONTROLLER.format(fifo=str(fifo)))
    words = (
        "soak",
        "--seeds",
        "100000",
        "--controller",
        str(controller),
        "--results",
        str(tmp_path / "results"),
    )
    with (
        os.fdopen(
            os.open(fifo, os.O_RDWR), "r"
        ) as loaded,  # for writing, too: it does not end between two of them
        subprocess.Popen(
            [sys.executable, "-m", "fanin", *words],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        while int(loaded.readline()) == process.pid:
            pass  # until a process of the pool has loaded the controller
        os.killpg(process.pid, number)
        output, errors = process.communicate()
    assert process.returncode == status
    assert "Traceback" not in output + errors
