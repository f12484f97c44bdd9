"""A gNMI server on ports that the test moves, and plain gRPC calls of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import finsy as fy
import grpc
import pytest
from finsy.proto import gnmi, gnmi_grpc

from fanin.p4switch.gnmi.schema import PortState
from fanin.p4switch.gnmi.service import GnmiService
from fanin.p4switch.ports.counters import PortCounters
from fanin.p4switch.ports.interfaces import Interface

TIMEOUT = 20
MAX = 64  # subscriptions at a time
UP = Interface(
    up=True,
    running=True,
    address="02:00:00:00:00:01",
    speed=10000,
    carrier_changes=1,
    in_errors=0,
    out_errors=0,
    in_crc_errors=0,
)


def moved(count: int) -> PortCounters:
    return PortCounters(in_octets=100 * count, in_pkts=count, in_broadcast_pkts=1 if count else 0)


@dataclass
class Ports:
    """As SwitchPorts, without a kernel: two ports, s1-eth1 and s1-eth2, both up."""

    states: dict[str, PortState] = field(
        default_factory=lambda: {
            name: PortState(number, name, UP, moved(number), since=7)
            for number, name in ((1, "s1-eth1"), (2, "s1-eth2"))
        }
    )
    fixed: dict[str, OSError] = field(default_factory=dict)  # those that cannot be brought up or down
    listeners: list[Callable[[], None]] = field(default_factory=list)
    nobody_listens: threading.Event = field(default_factory=threading.Event)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.states)

    def read(self, names: Iterable[str]) -> dict[str, PortState]:
        return {name: self.states[name] for name in names}

    def set_up(self, name: str, up: bool) -> None:
        if name in self.fixed:
            raise self.fixed[name]
        self.change(name, interface=replace(self.states[name].interface or UP, up=up, running=up))

    def change(self, name: str, **changes: Any) -> None:
        self.states[name] = replace(self.states[name], **changes)
        for tell in self.listeners:
            tell()

    @contextmanager
    def listening(self, tell: Callable[[], None]) -> Iterator[None]:
        self.listeners.append(tell)
        try:
            yield
        finally:
            self.listeners.remove(tell)
            self.nobody_listens.set()


class Refused(Exception):
    """An RPC's error."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")


def path(text: str) -> gnmi.Path:
    return fy.GNMIPath(text).path


class Client:
    """gNMI calls with paths as text."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = grpc.insecure_channel(address)
        self.stub = gnmi_grpc.gNMIStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def call(self, rpc: Any, request: Any) -> Any:
        try:
            return rpc(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def get(self, *paths: str, encoding: str = "PROTO", **fields: Any) -> list[gnmi.Update]:
        """The updates of all notifications."""
        request = gnmi.GetRequest(path=map(path, paths), encoding=encoding, **fields)
        response = self.call(self.stub.Get, request)
        return [update for notification in response.notification for update in notification.update]

    def set(self, **fields: Any) -> gnmi.SetResponse:
        return self.call(self.stub.Set, gnmi.SetRequest(**fields))

    def subscribe(self, *paths: str, mode: str = "STREAM", **fields: Any) -> Any:
        """The call, which yields responses; its paths are subscribed ON_CHANGE."""
        parts = [gnmi.Subscription(path=path(p), mode="ON_CHANGE") for p in paths]
        wanted = gnmi.SubscriptionList(subscription=parts, mode=mode, **fields)
        return self.open(gnmi.SubscribeRequest(subscribe=wanted))

    def open(self, *requests: gnmi.SubscribeRequest) -> Any:
        return self.stub.Subscribe(iter(requests), timeout=TIMEOUT)


@pytest.fixture
def ports() -> Ports:
    return Ports()


@pytest.fixture
def client(ports: Ports) -> Iterator[Client]:
    with ThreadPoolExecutor(MAX + 2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((GnmiService(ports).handler(),))  # type: ignore[arg-type]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        client = Client(f"127.0.0.1:{port}")
        yield client
        client.close()
        server.stop(grace=0).wait()
