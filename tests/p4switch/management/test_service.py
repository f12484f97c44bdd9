"""Calls and streams beside P4Runtime: plain data both ways, errors as text, streams that end with their callers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fanin.p4switch.management.__main__ import main
from fanin.p4switch.management.service import ManagementClient, ManagementError, handler
from tests.sizes import sized

MESSAGES = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5) | st.just(0.25),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)
TIMEOUT = 30


class Service:
    def __init__(self) -> None:
        self.closed = threading.Event()

    def refuse(self, request: dict[str, Any]) -> dict[str, Any]:
        raise ManagementError(f"no {request['what']} here: take another")

    def count(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {}
        for number in range(request["to"]):
            yield {"number": number}
            if number == request.get("fail_at"):
                raise ManagementError("that was enough")

    def silence(self, _request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        try:
            yield {"open": True}
            while True:
                yield {}
        finally:
            self.closed.set()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Service]]:
    service = Service()
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers(
        (
            handler(
                {"Echo": lambda request: request, "Refuse": service.refuse},
                {"Count": service.count, "Silence": service.silence},
            ),
        )
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}", service
    server.stop(grace=0).wait()


@settings(max_examples=sized(13, 40))
@given(message=MESSAGES)
def test_messages_arrive_as_they_were_sent(served: tuple[str, Service], message: dict[str, Any]):
    with ManagementClient(served[0]) as client:
        assert client.call("Echo", message) == message


def test_whole_numbers_stay_whole(served: tuple[str, Service]):
    with ManagementClient(served[0]) as client:
        answer = client.call("Echo", {"a": 3, "b": [4.0], "c": {"d": 0.5}})
    assert json.dumps(answer, sort_keys=True) == '{"a": 3, "b": [4], "c": {"d": 0.5}}'


def test_an_error_arrives_with_its_text(served: tuple[str, Service]):
    with ManagementClient(served[0]) as client, pytest.raises(ManagementError, match="no port here: take"):
        client.call("Refuse", {"what": "port"})


def test_a_stream_ends_when_the_switch_says_so(served: tuple[str, Service]):
    with ManagementClient(served[0]) as client:
        assert list(client.stream("Count", {"to": 3})) == [{"number": n} for n in range(3)]


def test_a_stream_may_fail_half_way(served: tuple[str, Service]):
    with ManagementClient(served[0]) as client:
        messages = client.stream("Count", {"to": 5, "fail_at": 0})
        assert next(messages) == {"number": 0}
        with pytest.raises(ManagementError, match="enough"):
            next(messages)


def test_a_stream_whose_caller_has_gone_is_closed(served: tuple[str, Service]):
    address, service = served
    with ManagementClient(address) as client:
        messages = client.stream("Silence", {})
        assert next(messages) == {"open": True}
        messages.close()
    assert service.closed.wait(TIMEOUT)


def test_a_switch_without_the_call_is_named(served: tuple[str, Service]):
    with ManagementClient(served[0]) as client:
        with pytest.raises(ManagementError, match="has no Fly"):
            client.call("Fly", {})
        with pytest.raises(ManagementError, match="has no Fly"):
            list(client.stream("Fly", {}))


def test_no_switch_is_an_error():
    with ManagementClient("127.0.0.1:1") as client, pytest.raises(ManagementError, match="no switch answers"):
        client.call("Echo", {})


def test_the_command_prints_a_line_for_each_message(served: tuple[str, Service], capsys: Any):
    address, _ = served
    assert main([address, "Echo", '{"a": [1, 2.5]}']) == 0
    assert main([address, "Count", '{"to": 2}']) == 0
    lines = capsys.readouterr().out.splitlines()
    assert list(map(json.loads, lines)) == [{"a": [1, 2.5]}, {"number": 0}, {"number": 1}]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "usage"),
        (["Echo", "{"], 2, "JSON object"),
        (["Echo", "[]"], 2, "JSON object"),
        (["Refuse", '{"what": "port"}'], 1, "no port here"),
    ],
)
def test_the_command_says_what_is_wrong(
    served: tuple[str, Service], capsys: Any, arguments: list[str], status: int, message: str
):
    assert main([served[0], *arguments] if arguments else []) == status
    assert message in capsys.readouterr().err
