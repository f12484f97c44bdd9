"""Traces of a running switch over its management service."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import grpc
import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.management.service import ManagementClient, ManagementError, handler
from fanin.p4switch.trace import tracer
from fanin.p4switch.trace.bmv2_log import PacketLog
from fanin.p4switch.trace.stream import trace_stream
from fanin.p4switch.trace.tracer import traced

PACKET = bytes(20)


class Switch:
    """A server of traces of `engine`, and its client."""

    def __init__(self, engine: Engine) -> None:
        self.engine: Engine | None = engine
        self.server = grpc.server(ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers((handler({}, {"Trace": trace_stream(lambda: self.engine)}),))
        self.client = ManagementClient(f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}")
        self.server.start()

    def ready(self, request: dict[str, object]) -> Generator[dict[str, Any], None, None]:
        """The messages of a trace, once packets are traced."""
        messages = self.client.stream("Trace", request)
        assert next(messages) == {"ready": True}
        return messages

    def first(self, request: dict[str, object]) -> dict[str, object]:
        """The first message of a trace that begins while packets come, and is closed then."""
        messages = self.ready(request)
        with ThreadPoolExecutor(1) as pool:
            told = pool.submit(next, messages)
            send_until(told, self.engine)
            pool.submit(messages.close).result()
            return told.result()


def send_until(told: Future[Any], engine: Engine | None) -> None:
    """Packets until something has been told."""
    while not told.done():
        if engine is not None:
            engine.process(1, PACKET)
        wait([told], timeout=0.02)


@pytest.fixture
def switch(engine: Callable[[str], Engine]) -> Iterator[Switch]:
    running = Switch(engine("forwarder"))
    yield running
    running.client.close()
    running.server.stop(grace=0).wait()


def test_packets_come_as_text_or_json(switch: Switch) -> None:
    text = switch.first({})["trace"]
    assert isinstance(text, str)
    assert text.splitlines()[-1] == "  => 1 packet out: port 2 (20 bytes)"
    told = json.loads(str(until_free(switch, {"json": True})["trace"]))
    assert bytes.fromhex(told["packet"]) == PACKET


def until_free(switch: Switch, request: dict[str, object]) -> dict[str, object]:
    """A trace's first message, once the switch has seen that whoever looked before has gone."""
    while True:
        try:
            return switch.first(request)
        except ManagementError as error:
            if "already" not in str(error):
                raise


def test_who_leaves_gives_the_switch_back(switch: Switch) -> None:
    for _ in range(3):
        until_free(switch, {"filter": "ethernet.ethertype=0"})


def test_one_looks_at_a_time(switch: Switch) -> None:
    assert switch.engine is not None
    with traced(switch.engine), pytest.raises(ManagementError, match="being traced already"):
        switch.first({})


def test_beside_its_own_log_a_switch_is_traced_as_without_it(switch: Switch) -> None:
    assert switch.engine is not None
    engine = switch.engine
    log = PacketLog(lambda: engine, "", 0)
    while engine.base not in tracer._SHARED:
        wait([], timeout=0.01)
    assert "1 packet out: port 2" in str(switch.first({})["trace"])
    assert "1 packet out: port 2" in str(switch.first({"filter": "port=1"})["trace"])
    log.stop()
    assert "1 packet out: port 2" in str(until_free(switch, {})["trace"])


@pytest.mark.parametrize(("text", "complaint"), [("ipv4.ttl=1", "is not a field"), ("port", "FIELD=VALUE")])
def test_a_filter_that_cannot_be_checked(switch: Switch, text: str, complaint: str) -> None:
    with pytest.raises(ManagementError, match=complaint):
        switch.first({"filter": text})


def test_without_a_program_there_is_nothing_to_trace(switch: Switch) -> None:
    switch.engine = None
    with pytest.raises(ManagementError, match="no program yet"):
        switch.first({})


def test_it_ends_when_the_program_is_replaced(switch: Switch) -> None:
    assert switch.engine is not None
    before = switch.engine
    messages = switch.ready({})
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(next, messages)
        send_until(told, before)
        switch.engine = before.new_instance()
        rest = pool.submit(list, messages).result(timeout=60)
    assert all("trace" in message for message in [told.result(), *rest])
