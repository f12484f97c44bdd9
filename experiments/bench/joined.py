"""All-reduces on a network that is up, by a worker on each of its hosts (joined_worker.py)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from typing import IO

import numpy as np

from experiments.bench.allreduce_worker import Order, Report
from topologies.errors import NetworkError
from topologies.running import JOB_SERVICE, RunningNetwork
from workers.membership import HOST, SERVICE

_GRACE = 3.0  # seconds for the others to say why they ended, too, once one has


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an order: seconds of each repetition, from the last worker's call to the last result.

    wrong: elements of all sums that are not within their bound. retransmissions: of all workers, the first all-reduce,
    which is not among `seconds`, included.
    """

    workers: int
    bytes: int
    seconds: list[float]
    retransmissions: int
    wrong: int


class _Worker:
    """The process on a host."""

    def __init__(self, network: RunningNetwork, host: str, orders: Sequence[Order]) -> None:
        self.host = host
        self._errors: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115
        asked = json.dumps([asdict(order) for order in orders])
        # As many threads as there are workers, and no more: they share this machine's processors.
        environment = {
            "OPENBLAS_NUM_THREADS": "1",
            HOST: host,
            SERVICE: str(network.run.folder / JOB_SERVICE),
        }
        self.process = subprocess.Popen(
            network.inside([sys.executable, "-P", "-m", "experiments.bench.joined_worker", asked], host),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | environment,
        )

    def listen(self, heard: SimpleQueue[tuple[_Worker, Report | None]]) -> None:
        """Puts its reports there as they come, and None at its end."""
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                heard.put((self, Report(**json.loads(line))))
        heard.put((self, None))

    def failure(self, deadline: float) -> str:
        """Why it has failed; empty if it has not by `deadline` (on the monotonic clock)."""
        try:
            status = self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return ""
        self._errors.seek(0)
        said = self._errors.read().strip().splitlines()
        return f"{self.host}: {said[-1] if said else f'exit status {status}'}" if status else ""

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        self._errors.close()


def all_reduce(network: RunningNetwork, orders: Sequence[Order]) -> Iterator[Outcome]:
    """Have all hosts do them; yields what came of each as it is done.

    Raises:
        NetworkError: the network is gone, or what each worker says that failed.
    """
    heard: SimpleQueue[tuple[_Worker, Report | None]] = SimpleQueue()
    reports: dict[_Worker, list[Report]] = {}
    with ExitStack() as stack:
        for host in network.hosts:
            worker = _Worker(network, host, orders)
            listening = threading.Thread(target=worker.listen, args=[heard])
            stack.callback(listening.join)
            stack.callback(worker.close)
            reports[worker] = []
            listening.start()
        for index, order in enumerate(orders):
            while any(len(told) <= index for told in reports.values()):
                worker, report = heard.get()
                if report is not None:
                    reports[worker].append(report)
                elif worker.process.wait():
                    deadline = time.monotonic() + _GRACE
                    reasons = filter(None, (each.failure(deadline) for each in reports))
                    raise NetworkError("\n  ".join(["the all-reduce failed:", *reasons]))
            yield _outcome(order, [told[index] for told in reports.values()])


def _outcome(order: Order, reports: Sequence[Report]) -> Outcome:
    starts, ends = (
        np.max([getattr(report, name) for report in reports], axis=0) for name in ("starts", "ends")
    )
    return Outcome(
        workers=len(reports),
        bytes=4 * order.elements,
        seconds=(ends - starts).tolist(),
        retransmissions=sum(report.retransmissions for report in reports),
        wrong=sum(report.wrong for report in reports),
    )
