"""Connections from strangers: those that do nothing keep nobody out, and take no more than their share."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from fanin.controller import admission
from fanin.controller.admission import Admit, accepting

PENDING, ADMITTED = 4, 3

Connect = Callable[..., socket.socket]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_PENDING", PENDING)
    monkeypatch.setattr(admission, "MAX_ADMITTED", ADMITTED)


async def greet(connection: socket.socket, admit: Admit) -> None:
    """Answer a client that sends something and is admitted, and wait until it hangs up."""
    loop = asyncio.get_running_loop()
    if await loop.sock_recv(connection, 100):
        await loop.sock_sendall(connection, b"welcome" if admit() else b"full")
        await loop.sock_recv(connection, 100)


def served(check: Callable[[Connect], Awaitable[None]], listener: socket.socket | None = None) -> None:
    async def run() -> None:
        at = listener or socket.create_server(("127.0.0.1", 0))
        port = at.getsockname()[1]
        with ExitStack() as stack:

            def connect(address: str = "127.0.0.1") -> socket.socket:
                client = socket.create_connection(("127.0.0.1", port), 60, (address, 0))
                return stack.enter_context(client)

            async with accepting(at, greet):
                await check(connect)

    asyncio.run(run())


async def said_to(client: socket.socket, hello: bytes = b"hello") -> bytes:
    await asyncio.to_thread(client.sendall, hello)
    return await asyncio.to_thread(client.recv, 100)


async def closed(client: socket.socket) -> None:
    assert await asyncio.to_thread(client.recv, 100) == b""


def test_silent_clients_make_room_for_others_the_oldest_first() -> None:
    async def check(connect: Connect) -> None:
        silent = [connect() for _ in range(10 * PENDING)]
        assert await said_to(connect()) == b"welcome"
        for client in silent[: 9 * PENDING + 1]:
            await closed(client)
        assert await said_to(silent[-1]) == b"welcome"

    served(check)


def test_an_address_with_few_clients_is_not_kept_out_by_one_with_many() -> None:
    async def check(connect: Connect) -> None:
        patient = connect("127.0.0.2")
        flood = [connect() for _ in range(10 * PENDING)]
        await closed(flood[0])
        assert await said_to(patient) == b"welcome"

    served(check)


def test_who_is_admitted_stays_and_there_are_not_too_many() -> None:
    async def check(connect: Connect) -> None:
        clients = [connect() for _ in range(ADMITTED)]
        for client in clients:
            assert await said_to(client) == b"welcome"
        flood = [connect() for _ in range(10 * PENDING)]
        await closed(flood[0])
        late = connect()
        assert await said_to(late) == b"full"
        clients[0].close()
        assert await said_to(connect()) in (b"welcome", b"full")  # the end of the other may not be known yet
        for client in clients[1:]:
            client.setblocking(False)
            with pytest.raises(BlockingIOError):
                client.recv(1)

    served(check)


def test_connections_take_a_share_of_the_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (16, 16))  # an eighth of which is 2

    async def check(connect: Connect) -> None:
        first, *_ = [connect() for _ in range(3)]
        await closed(first)

    served(check)


def test_without_a_file_descriptor_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "_PAUSE_SECONDS", 0)

    async def check(connect: Connect) -> None:
        loop = asyncio.get_running_loop()
        accept, failures = loop.sock_accept, iter([True])

        async def exhausted(listener: socket.socket) -> tuple[socket.socket, object]:
            if next(failures, False):
                raise OSError(errno.EMFILE, "Too many open files")
            return await accept(listener)

        oldest = connect()
        assert await said_to(connect()) == b"welcome"  # so that the oldest has been accepted
        monkeypatch.setattr(loop, "sock_accept", exhausted)
        connect()
        await closed(oldest)
        assert await said_to(connect()) == b"welcome"

    served(check)


def test_all_are_closed_at_the_end() -> None:
    clients: list[socket.socket] = []

    async def check(connect: Connect) -> None:
        client = connect()
        assert await said_to(client) == b"welcome"
        clients.append(client.dup())

    served(check)
    with clients[0] as client:
        assert client.recv(100) == b""
