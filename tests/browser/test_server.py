"""The server answers its own pages, and nobody else."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError

from fanin.browser.server import LONGEST_MESSAGE, Page, ServeError, application, is_loopback, serve, serving

HERE = "127.0.0.1:8040"
TOKEN = "secret-token"


async def _greet(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


async def _talk(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.close()


PAGE = Page("play", (Route("/hello", _greet, methods=["GET", "POST"]), WebSocketRoute("/talk", _talk)))


def call(app: ASGIApp, path: str, kind: str = "http", method: str = "GET", **headers: str) -> list[Message]:
    """Return what the server sends for one request."""
    path, _, query = path.partition("?")
    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "root_path": "",
        "scheme": "http",
        "server": ("127.0.0.1", 8040),
        "subprotocols": [],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect" if kind == "websocket" else "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    return sent


def status(app: ASGIApp, path: str, **options: str) -> int:
    return int(call(app, path, **options)[0]["status"])


def opens(app: ASGIApp, **headers: str) -> bool:
    return call(app, "/play/talk", "websocket", **headers)[0]["type"] == "websocket.accept"


def headers_of(message: Message) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in message["headers"]}


@pytest.mark.parametrize("host", ["127.0.0.1:8040", "localhost:8040", "[::1]:8040", "localhost"])
def test_it_is_reached_by_names_of_this_machine(host: str) -> None:
    assert status(application([PAGE]), "/play/", Host=host) == 200


@pytest.mark.parametrize(
    "host", ["evil.example:8040", "127.0.0.1.evil.example", "", "localhost.evil.example:80"]
)
def test_a_name_that_another_site_may_have_bound_to_this_address_is_refused(host: str) -> None:
    app = application([PAGE])
    assert status(app, "/play/hello", Host=host) == 421
    assert not opens(app, Host=host, Origin=f"http://{host}")


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8040"]
)
def test_a_page_of_another_site_cannot_call(origin: str) -> None:
    app = application([PAGE])
    assert status(app, "/play/hello", method="POST", Host=HERE, Origin=origin) == 403
    assert not opens(app, Host=HERE, Origin=origin)


def test_who_names_no_origin_cannot_call_and_its_own_page_can() -> None:
    app = application([PAGE])
    assert not opens(app, Host=HERE)
    assert opens(app, Host=HERE, Origin=f"http://{HERE}")
    assert status(app, "/play/hello", method="POST", Host=HERE, Origin=f"http://{HERE}") == 200


def test_a_token_is_asked_for_everything_and_becomes_a_cookie() -> None:
    app = application([PAGE], token=TOKEN)
    for path in ("/play/", "/play/hello", "/assets/play.js", "/play/?token=wrong", "/play/?token="):
        assert status(app, path, Host=HERE) == 403
    assert not opens(app, Host=HERE, Origin=f"http://{HERE}")
    (start, *_) = call(app, f"/play/?program=x&token={TOKEN}", Host=HERE)
    answer = headers_of(start)
    assert (start["status"], answer["location"]) == (307, "/play/?program=x")
    assert {"HttpOnly", "SameSite=strict"} <= set(answer["set-cookie"].split("; "))
    cookie = answer["set-cookie"].partition(";")[0]
    assert status(app, "/play/", Host=HERE, Cookie=cookie) == 200
    assert opens(app, Host=HERE, Origin=f"http://{HERE}", Cookie=cookie)
    assert not opens(app, Host=HERE, Origin="http://evil.example", Cookie=cookie)


def test_pages_load_nothing_from_elsewhere_and_are_in_no_frame() -> None:
    app = application([PAGE])
    nonces = set()
    for _ in range(2):
        start, body = call(app, "/play/", Host=HERE)[:2]
        policy = headers_of(start)["content-security-policy"]
        for rule in (
            "default-src 'none'",
            "script-src 'self'",
            "connect-src 'self'",
            "frame-ancestors 'none'",
        ):
            assert rule in policy
        assert "unsafe" not in policy
        found = re.search(r"'nonce-([^']+)'", policy)
        assert found is not None
        assert f'content="{found[1]}"' in body["body"].decode()
        nonces.add(found[1])
    assert len(nonces) == 2


@pytest.mark.parametrize(
    "path", ["/assets/../server.py", "/assets/%2e%2e/server.py", "/play/../../etc/passwd", "/server.py"]
)
def test_nothing_but_the_pages_is_delivered(path: str) -> None:
    assert status(application([PAGE]), path, Host=HERE) == 404


def test_an_address_that_cannot_be_listened_at_is_refused() -> None:
    for address in ("nowhere", "203.0.113.7"):
        with pytest.raises(ServeError, match=address):
            serve([PAGE], print, address=address)
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("localhost.evil.example")


async def _repeat(websocket: WebSocket) -> None:
    await websocket.accept()
    async for text in websocket.iter_text():
        await websocket.send_text(str(len(text)))


def test_messages_without_end_and_requests_of_two_minds_are_refused() -> None:
    async def answer_to(url: str, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(url).port)
        writer.write(request)
        try:
            return await reader.readline()
        except ConnectionError:  # the server has closed the connection before it has read everything
            return b""
        finally:
            writer.transport.abort()

    async def repeated(client: ClientConnection, text: str) -> str | bytes:
        await client.send(text)
        return await client.recv()

    async def attack() -> None:
        page = Page("play", [WebSocketRoute("/repeat", _repeat)])
        async with serving([page], socket.create_server(("127.0.0.1", 0))) as url:
            own = url.removesuffix("/play/")
            for size in (2 * LONGEST_MESSAGE, 64 * LONGEST_MESSAGE):  # the latter is compressed into 64 kB
                async with connect(f"{own.replace('http', 'ws')}/play/repeat", origin=own) as client:  # type: ignore[arg-type]
                    assert await repeated(client, "x" * 100) == "100"
                    with pytest.raises(ConnectionClosedError):
                        await repeated(client, "x" * size)
            good = f"GET /play/ HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n".encode()
            assert b" 200 " in await answer_to(url, good + b"\r\n")
            assert b" 400 " in await answer_to(url, good + b"Host: evil.example\r\n\r\n")
            assert b" 200 " not in await answer_to(url, good + b"X: " + b"a" * LONGEST_MESSAGE)

    asyncio.run(attack())
