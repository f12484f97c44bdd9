"""The launcher without a network: its ranks are processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fanin.testbed.launch import Launch, run

# Each rank ends when its pipe is opened: the first two with status 3, the last with 0.
ENDS = """
import os, sys
rank = int(os.environ["RANK"])
alive = os.open(f"{sys.argv[1]}/alive-{rank}", os.O_RDWR)
open(f"{sys.argv[1]}/pipe-{rank}").read()
sys.exit(3 if rank < 2 else 0)
"""


def network(folder: Path, hosts: Sequence[str]) -> Any:
    """A network with only the parts that the launcher uses."""
    return SimpleNamespace(
        hosts={host: SimpleNamespace(ip="127.0.0.1") for host in hosts},
        run=SimpleNamespace(folder=folder),
        inside=lambda argv, _host: list(argv),
    )


def test_a_rank_that_fails_while_another_is_declared_absent_is_reported(tmp_path: Path) -> None:
    hosts = ["h1", "h2", "h3"]
    for rank in range(3):
        os.mkfifo(tmp_path / f"pipe-{rank}")
        os.mkfifo(tmp_path / f"alive-{rank}")
    reports: list[str] = []

    def end(rank: int) -> None:
        (tmp_path / f"pipe-{rank}").write_text("")

    def absent(host: str) -> contextlib.AbstractContextManager[None]:
        if host == "h2":
            with (tmp_path / "alive-0").open() as alive:
                end(0)
                alive.read()  # until it has ended
        return contextlib.nullcontext()

    def report(what: str) -> None:
        reports.append(what)
        if len(reports) == 2:
            end(2)

    async def launched() -> int:
        argv = [sys.executable, "-c", ENDS, str(tmp_path)]
        launch = Launch(network(tmp_path, hosts), hosts, argv, "job", output=tmp_path / "out", min_workers=1)
        status, _ = await asyncio.gather(run(launch, lambda: None, report, absent), asyncio.to_thread(end, 1))
        return status

    assert asyncio.run(asyncio.wait_for(launched(), 60)) == 0
    assert reports == [
        "rank 1 on h2 failed: exit status 3; the others continue",
        "rank 0 on h1 failed: exit status 3; the others continue",
    ]
