"""The reaction of a member when another has ended: a switch on the loopback, and a service that reports it."""

import json
import os
import resource
import socket
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fanin.controller.jobs.reports import Report
from fanin.workers.job import environment, membership, reporting
from fanin.workers.job.membership import JoinError, LeftError, Member
from fanin.workers.lease import Lease
from fanin.workers.protocol import Worker
from fanin.workers.recovery import Recovery
from fanin.workers.udp import InNetworkConfig
from tests.workers.loopback import SWITCH, WINDOW, free_address, switch

LEFT = {"left": {"host": "h2", "rank": 1, "process": 4712}}


class Service:
    """In place of the connection to the job service."""

    def __init__(self, *news: object, ended: bool = False) -> None:
        self._news = deque(news)
        self._ended = ended
        self.mentioned: list[Any] = []

    def send_or_drop(self, message: Any) -> None:
        self.mentioned.append(message)

    def receive(self, timeout: float | None) -> object:  # noqa: ARG002
        if self._news:
            return self._news.popleft()
        if self._ended:
            raise JoinError("the network has ended")
        return None

    def send(self, message: object) -> None:
        pass

    def fileno(self) -> int:
        return -1  # what there is to hear is found when a timer has expired

    def close(self) -> None:
        pass


def member(rank: int, here: tuple[str, int], service: Any) -> Member:
    recovery = Recovery(initial_rto=0.05, min_rto=0.02, max_rto=0.1, give_up=20.0)
    config = InNetworkConfig(Lease(5, rank, 2, WINDOW), here, SWITCH, recovery=recovery)
    return Member(config, [], service)


def test_who_waits_in_vain_is_told_who_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_LEFT_SECONDS", 0.1)
    here = [free_address(), free_address()]
    with switch(here), member(0, here[0], Service(LEFT)) as alone:
        with pytest.raises(
            LeftError, match=r"^rank 1 \(process 4712 on h2\) ended while others wait: rank 0 of 2"
        ):
            alone.all_reduce(np.ones(10, np.float32))
        assert alone.left() == ["rank 1 (process 4712 on h2)"]


def test_what_those_who_left_had_sent_before_still_counts() -> None:
    """A result that is lost on its way is served again, whoever has ended since."""
    here = [free_address(), free_address()]
    x = np.ones(10_000, np.float32)
    with (
        switch(here, drop_every=5),
        member(0, here[0], Service(LEFT)) as staying,
        member(1, here[1], Service()) as leaving,
        ThreadPoolExecutor(2) as pool,
    ):
        sums = list(pool.map(lambda each: each.all_reduce(x), (staying, leaving)))
        assert staying.statistics.retransmissions
    np.testing.assert_allclose(sums[0], 2, rtol=1e-6)
    assert (sums[0] == sums[1]).all()


def test_the_end_of_the_network_ends_the_wait() -> None:
    here = [free_address(), free_address()]
    with (
        switch(here),
        member(0, here[0], Service(ended=True)) as alone,
        pytest.raises(JoinError, match="the network has ended"),
    ):
        alone.all_reduce(np.ones(10, np.float32))


def test_one_that_waits_reports_for_what_and_that_it_has_it() -> None:
    here = [free_address(), free_address()]
    x = np.ones(10_000, np.float32)
    waits = Service()
    with (
        switch(here),
        member(0, here[0], waits) as first,
        member(1, here[1], Service()) as second,
        ThreadPoolExecutor(1) as pool,
    ):
        result = pool.submit(first.all_reduce, x)
        while not waits.mentioned:  # until a timer has expired
            assert not result.done()
        second.all_reduce(x)
        result.result()
        lease = first.config.lease
    begun, ended = (Report.model_validate(json.loads(json.dumps(said))["report"]) for said in waits.mentioned)
    assert begun.waiting is not None
    assert (begun.all_reduces, begun.waiting.all_reduce, begun.waiting.elements) == (0, 1, 10_000)
    assert begun.waiting.chunks[0][0] == lease.first_chunk
    assert (ended.all_reduces, ended.waiting) == (1, None)
    assert ended.bytes_received > 4 * 10_000


def test_one_that_is_not_held_up_reports_once_a_second_at_most() -> None:
    now = 0.0
    mentioned: list[float] = []
    reporter = reporting.Reporter(Worker(Lease(5, 0, 2, WINDOW)), lambda _: mentioned.append(now))
    for now in (100.0, 100.5, 100.9, 101.0, 101.5):
        reporter.look(now)
    assert mentioned == [100.0, 101.0]


def test_news_are_heard_however_long_the_timers_are() -> None:
    """As on links where an answer takes seconds: nothing is sent again before."""
    recovery = Recovery(initial_rto=50.0, min_rto=50.0, max_rto=50.0, give_up=100.0)
    here = [free_address(), free_address()]
    config = InNetworkConfig(Lease(5, 0, 2, WINDOW), here[0], SWITCH, recovery=recovery)
    ends: Any = Service(LEFT, LEFT | {"left": {"host": "h3", "rank": 2, "process": 4713}})
    with switch(here), Member(config, [], ends) as alone:
        with pytest.raises(LeftError, match=r"^rank 1 \(process 4712 on h2\) ended while others wait"):
            alone.all_reduce(np.ones(10, np.float32))
        assert not alone.statistics.retransmissions


def test_what_the_service_said_before_it_ended_is_heard_by_who_sends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.HOST, "h1")
    monkeypatch.setenv(environment.SERVICE, str(tmp_path / "service"))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "service"))
        listener.listen()
        with closing(membership.Service()) as service:
            there, _ = listener.accept()
            with there:
                there.sendall(json.dumps(LEFT).encode() + b"\n")
            service.send({"finished": [1, 2]})
            assert service.receive(None) == LEFT
            with pytest.raises(JoinError, match="the network has ended"):
                service.receive(None)


def test_news_are_heard_in_a_program_with_a_thousand_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 1200:
        pytest.skip(f"no process may have more than {hard} open files")
    monkeypatch.setenv(environment.HOST, "h1")
    monkeypatch.setenv(environment.SERVICE, str(tmp_path / "service"))
    with ExitStack() as files, socket.socket(socket.AF_UNIX) as listener:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        listener.bind(str(tmp_path / "service"))
        listener.listen()
        while files.enter_context(Path(os.devnull).open()).fileno() < 1100:
            pass
        service = membership.Service()
        there, _ = listener.accept()
        with there:
            assert service.receive(0.0) is None
            there.sendall(json.dumps(LEFT).encode() + b"\n")
            assert service.receive(None) == LEFT
        with pytest.raises(JoinError, match="the network has ended"):
            service.receive(None)
        service.close()
