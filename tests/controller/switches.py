"""Switches without ports that controllers are tested against, and a proxy before each at which calls go wrong."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

from fanin.controller.connection import _canonical
from fanin.topologies.model import Topology
from fanin.topologies.shapes import topology_from
from tests import preloading
from tests.free_ports import free_port


class SwitchProcess:
    """A p4switch process without ports on this machine's loopback."""

    def __init__(self, device_id: int) -> None:
        self.grpc_port = free_port()
        self.device_id = device_id
        self.start()

    def start(self) -> None:
        target = ["--grpc-server-addr", f"127.0.0.1:{self.grpc_port}", "--cpu-port", "255"]
        command = [
            sys.executable,
            "-P",
            "-m",
            "fanin.p4switch",
            "--no-p4",
            "--device-id",
            str(self.device_id),
            "--",
        ]
        self._process = preloading.start([*command, *target], stdout=subprocess.PIPE)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline().startswith(b"ready")

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        # Its other threads go on until the one that has the signal is scheduled: on a busy machine, for a while.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """As after a power cut: empty."""
        self.end()
        self.start()
        self.wait_ready()


@contextmanager
def running(topology: Topology) -> Iterator[tuple[Topology, dict[str, SwitchProcess]]]:
    """`topology` with a process for each switch."""
    data = topology.model_dump(mode="json")
    processes = {}
    try:
        for switch in data["switches"]:
            processes[switch["name"]] = process = SwitchProcess(switch["device_id"])
            switch["grpc_port"] = process.grpc_port
        for process in processes.values():
            process.wait_ready()
        yield topology_from(data), processes
    finally:
        for process in processes.values():
            process.end()


class State(dict[str, frozenset[object]]):
    """The content of each switch; two of them differ in a readable way."""


async def read_state(network: Topology, without: Collection[str] = ()) -> State:
    """All table entries and multicast groups of each switch."""
    return State(
        {
            switch.name: frozenset(map(_canonical, await read_entities(network, switch.name)))
            for switch in network.switches
            if switch.name not in without
        }
    )


async def read_entities(network: Topology, switch: str) -> list[Any]:
    """All table entries and multicast groups, as another client reads them."""
    node = network.switch(switch)
    group = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    wildcards = [
        p4r.Entity(table_entry=p4r.TableEntry()),
        p4r.Entity(packet_replication_engine_entry=group),
    ]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        request = p4r.ReadRequest(device_id=node.device_id, entities=wildcards)
        responses = [response async for response in p4r_grpc.P4RuntimeStub(channel).Read(request)]
    return [entity for response in responses for entity in response.entities]


@asynccontextmanager
async def another_primary(network: Topology, switch: str, election_id: int) -> AsyncIterator[Any]:
    """Somebody else who has taken a switch over: a coroutine function that sends Updates of a kind."""
    node = network.switch(switch)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{node.grpc_port}") as channel:
        stub = p4r_grpc.P4RuntimeStub(channel)
        stream = stub.StreamChannel()
        election = p4r.Uint128(low=election_id)
        update = p4r.MasterArbitrationUpdate(device_id=node.device_id, election_id=election)
        await stream.write(p4r.StreamMessageRequest(arbitration=update))
        await stream.read()

        async def write(kind: Any, entities: Sequence[Any]) -> None:
            updates = [p4r.Update(type=kind, entity=entity) for entity in entities]
            await stub.Write(
                p4r.WriteRequest(device_id=node.device_id, election_id=election, updates=updates)
            )

        yield write
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass


# What happens at a call: it is handed the name of the switch, the request, and a coroutine function that makes it.
Mishap = Callable[[str, Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]


class Proxies:
    """P4Runtime servers before those of a network: they count the Writes and Reads of all, and let one go wrong."""

    def __init__(self) -> None:
        self.network: Topology
        self._mishap: Mishap | None = None
        self._until = 0
        self.happened = False

    def at(self, call: int, mishap: Mishap) -> None:
        """The call of this number, from 0 on, goes as `mishap` has it."""
        self._mishap, self._until, self.happened = mishap, call, False

    def calm(self) -> bool:
        """From now on nothing goes wrong; whether anything has."""
        self._mishap = None
        return self.happened

    async def make(self, switch: str, request: Any, make: Callable[[Any], Awaitable[Any]]) -> Any:
        mishap, self._until = self._mishap, self._until - 1
        if mishap is None or self._until >= 0:
            return await make(request)
        self._mishap, self.happened = None, True
        return await mishap(switch, request, make)


class _Proxy(p4r_grpc.P4RuntimeServicer):
    def __init__(self, switch: str, port: int, proxies: Proxies) -> None:
        self._switch, self._proxies = switch, proxies
        options = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 200)]
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def StreamChannel(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        call = self._stub.StreamChannel(wait_for_ready=True)

        async def pass_on() -> None:
            async for request in requests:
                await call.write(request)
            await call.done_writing()

        passing = asyncio.create_task(pass_on())
        try:
            async for response in call:
                yield response
        except grpc.aio.AioRpcError as error:
            await context.abort(error.code(), error.details())
        finally:
            passing.cancel()
            call.cancel()

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        return await self._pass(request, context, self._stub.SetForwardingPipelineConfig)

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        return await self._pass(request, context, self._stub.GetForwardingPipelineConfig)

    async def Write(self, request: Any, context: Any) -> Any:
        async def make(request: Any) -> Any:
            return await self._proxies.make(self._switch, request, self._stub.Write)

        return await self._pass(request, context, make)

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        async def collect(request: Any) -> list[Any]:
            return [response async for response in self._stub.Read(request)]

        async def make(request: Any) -> Any:
            return await self._proxies.make(self._switch, request, collect)

        for response in await self._pass(request, context, make):
            yield response

    async def _pass(self, request: Any, context: Any, make: Callable[[Any], Awaitable[Any]]) -> Any:
        try:
            return await make(request)
        except grpc.aio.AioRpcError as error:
            context.set_trailing_metadata(tuple(error.trailing_metadata()))
            await context.abort(error.code(), error.details())


@asynccontextmanager
async def proxied(network: Topology) -> AsyncIterator[Proxies]:
    """Proxies before each switch of `network`; their own `network` has their ports."""
    proxies = Proxies()
    data = network.model_dump(mode="json")
    servers, servicers = [], []
    for switch in data["switches"]:
        servicer = _Proxy(switch["name"], switch["grpc_port"], proxies)
        server = grpc.aio.server()
        p4r_grpc.add_P4RuntimeServicer_to_server(servicer, server)
        switch["grpc_port"] = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        servers.append(server)
        servicers.append(servicer)
    proxies.network = topology_from(data)
    try:
        yield proxies
    finally:
        for server in servers:
            await server.stop(None)
        for servicer in servicers:
            await servicer.close()
