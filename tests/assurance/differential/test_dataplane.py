"""BMv2's data plane over gRPC: switches that are not there yet, or never done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

import grpc
import pytest

from fanin.assurance.differential import dataplane
from fanin.assurance.differential.client import SwitchError
from fanin.assurance.differential.dataplane import exchange

Behaviour = Callable[[Iterator[bytes], grpc.ServicerContext], Iterator[bytes]]


@contextmanager
def switch(behaviour: Behaviour) -> Iterator[str]:
    """The address of a switch that does this with a stream of packets."""
    server = grpc.server(ThreadPoolExecutor(1))
    handler = grpc.stream_stream_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("p4.bm.DataplaneInterface", {"PacketStream": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def test_a_switch_that_is_never_done_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BMv2, which waits for ever where a meter is executed behind its end."""
    over = Event()

    def never_done(packets: Iterator[bytes], _context: grpc.ServicerContext) -> Iterator[bytes]:
        yield next(packets)
        over.wait()

    monkeypatch.setattr(dataplane, "_SECONDS", 0.3)
    with switch(never_done) as address:
        try:
            with pytest.raises(SwitchError, match=r"has not processed packets 1 to 2 within 0\.3 s"):
                exchange(address, 1, [(1, b"one"), (2, b"two")])
        finally:
            over.set()


def test_a_data_plane_that_has_not_started_yet_is_waited_for() -> None:
    """BMv2 serves P4Runtime first, and refuses packets for a while after that."""
    asked = 0

    def starting(packets: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        nonlocal asked
        asked += 1
        if asked < 3:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not ready")
        yield from packets

    with switch(starting) as address:
        assert exchange(address, 1, [(1, b"one"), (2, b"two")]) == [[(1, b"one")], [(2, b"two")]]
