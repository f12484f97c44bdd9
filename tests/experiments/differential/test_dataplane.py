"""BMv2's data plane over gRPC: what is said of a switch that does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import pytest

from experiments.differential import dataplane
from experiments.differential.client import SwitchError
from experiments.differential.dataplane import exchange


@pytest.fixture
def never_done() -> Iterator[str]:
    """The address of a switch that takes packets and is never done with them."""
    over = Event()

    def packets(requests: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield next(requests)
        over.wait()

    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.stream_stream_rpc_method_handler(packets)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("p4.bm.DataplaneInterface", {"PacketStream": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    over.set()
    server.stop(grace=None).wait()


def test_a_switch_that_never_ends_is_given_up(never_done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As BMv2, which waits for ever where a meter is executed behind its end."""
    monkeypatch.setattr(dataplane, "_SECONDS", 0.3)
    with pytest.raises(SwitchError, match=r"has not processed packets 1 to 2 within 0\.3 s"):
        exchange(never_done, 1, [(1, b"one"), (2, b"two")])
