"""The server of the pages: it delivers what web/ was built into, and keeps strangers out.

A page that another site shows in the same browser must not reach it. It answers only names of this machine (against DNS
rebinding), takes calls only from its own pages (against cross-site requests), and lets its pages load nothing from
elsewhere. Reached from other machines, it asks for a token.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import signal
import socket
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from fanin.testbed.sandbox import stop_signals

BUILT = Path(__file__).parent / "built"
MOST_IDLE = 64  # connections that wait for a request
_AT_ONCE = 16  # connections that asyncio accepts before it looks at any of them
LONGEST_MESSAGE = 1 << 20  # bytes of one message of a page
_MOST_CONNECTIONS = 1000  # others are answered with 503
_CLOSING_SECONDS = 2  # for connections to end at Ctrl-C
_NONCE = "PAGE-NONCE"  # in the pages' HTML, where the editor needs the nonce of the answer
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class ServeError(Exception):
    """The server cannot start. The message explains why, and what to do."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page, and the server's side of it.

    Attributes:
        name: Its folder in web/, and the first part of its address: /name/.
        routes: What the page calls, below /name/. A WebSocket is the usual way: it ends when the page is closed.
        running: Entered while the server runs.
    """

    name: str
    routes: Sequence[BaseRoute] = ()
    running: Callable[[], contextlib.AbstractAsyncContextManager[object]] = field(
        default=lambda: contextlib.nullcontext()
    )


def application(pages: Sequence[Page], *, names: Sequence[str] = (), token: str | None = None) -> ASGIApp:
    """Return the server as an ASGI application.

    Args:
        pages: The pages. The address / leads to the first.
        names: Names under which it may be reached, besides localhost and numeric addresses.
        token: What a browser must show before it is answered. None: it need not.
    """

    @contextlib.asynccontextmanager
    async def running(_app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as held:
            for page in pages:
                await held.enter_async_context(page.running())
            yield

    routes: list[BaseRoute] = [
        Route("/", lambda _: RedirectResponse(f"/{pages[0].name}/")),
        Mount("/assets", StaticFiles(directory=BUILT / "assets")),
    ]
    for page in pages:
        text = (BUILT / page.name / "index.html").read_text()
        routes.append(Mount(f"/{page.name}", routes=[Route("/", _document(text)), *page.routes]))
    return _Guard(Starlette(routes=routes, lifespan=running), names, token)


def _document(text: str) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        return HTMLResponse(text.replace(_NONCE, request.scope["nonce"]))

    return answer


class _Guard:
    """Answers requests that no page of this server makes with a refusal, and passes on the others."""

    def __init__(self, app: ASGIApp, names: Sequence[str], token: str | None) -> None:
        self._app = app
        self._names = {"localhost", *(name.lower() for name in names)}
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        nonce = scope["nonce"] = secrets.token_urlsafe(16)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers["Content-Security-Policy"] = (
                    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
                    f"style-src 'self' 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
                )
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            await self._app(scope, receive, guarded)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "refused"})
        else:
            await refusal(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_here(host):
            return PlainTextResponse(f"This server is not {host!r}.\n", 421)
        calls = scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD")
        if calls and headers.get("origin") != f"http://{host}":
            return PlainTextResponse("Only pages of this server may call it.\n", 403)
        if self._token is None:
            return None
        cookie = f"fanin-{host.rpartition(':')[2]}"  # browsers send cookies to all ports of a host
        if _equal(_cookies(headers).get(cookie), self._token):
            return None
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if scope["type"] == "http" and _equal(query.pop("token", None), self._token):
            answer = RedirectResponse(scope["path"] + (f"?{urlencode(query)}" if query else ""))
            answer.set_cookie(cookie, self._token, httponly=True, samesite="strict")
            return answer
        return PlainTextResponse("Open the address with the token, which the command has printed.\n", 403)

    def _is_here(self, host: str) -> bool:
        """Return whether a Host header names this machine. A number is no name that another site could have bound."""
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _equal(given: str | None, token: str) -> bool:
    return given is not None and secrets.compare_digest(given.encode(), token.encode())


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def serve(
    pages: Sequence[Page],
    say: Callable[[str], None],
    *,
    address: str = "127.0.0.1",
    port: int = 0,
    fragment: str = "",
    open_browser: bool = False,
) -> None:
    """Serve pages until Ctrl-C, SIGTERM or SIGHUP.

    Args:
        pages: The pages; the first is the one to open.
        say: Receives the address to open, as soon as it is served.
        address: The address to listen at. Any but a loopback address needs a token, which is part of what is said.
        port: The port; 0 takes any that is free.
        fragment: What follows # in the address to open.
        open_browser: Also open it in this machine's browser.

    Raises:
        ServeError: The address cannot be listened at.
    """
    listening = _listening(address, port)
    config, url = _configured(pages, listening)
    server = _Server(config, lambda: _started(url + (f"#{fragment}" if fragment else ""), say, open_browser))
    with listening:
        server.run(sockets=[listening])


@contextlib.asynccontextmanager
async def serving(pages: Sequence[Page], listening: socket.socket) -> AsyncIterator[str]:
    """Serve pages at a listening socket, inside the context, which yields the address to open.

    Signals are left to the program. Any but a loopback address needs a token, which is part of the address to open.
    """
    config, url = _configured(pages, listening)
    ready = asyncio.Event()
    server = _Server(config, ready.set, signals=False)
    task = asyncio.create_task(server.serve([listening]))
    task.add_done_callback(lambda _: ready.set())  # it has failed
    try:
        await ready.wait()
        yield url
    finally:
        server.should_exit = True
        await task


def _configured(pages: Sequence[Page], listening: socket.socket) -> tuple[uvicorn.Config, str]:
    """Return uvicorn's settings, and the address to open."""
    address, port = listening.getsockname()[:2]
    local = is_loopback(address)
    token = None if local else secrets.token_urlsafe(24)
    names = () if local else (socket.gethostname(), socket.getfqdn())
    shown = f"[{address}]" if ":" in address else address
    if ipaddress.ip_address(address).is_unspecified:
        shown = socket.gethostname()
    url = f"http://{shown}:{port}/{pages[0].name}/" + (f"?token={token}" if token else "")
    config = uvicorn.Config(
        application(pages, names=names, token=token),
        http=_bounded(MOST_IDLE),
        backlog=_AT_ONCE,
        log_level="error",
        ws_max_size=LONGEST_MESSAGE,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
    )
    return config, url


def _bounded(most: int) -> type[H11Protocol]:
    """Return uvicorn's protocol with a limit on connections that wait for a request: the oldest one makes room.

    Clients that connect and ask for nothing then use up no file descriptors of the program.
    """
    opened: dict[H11Protocol, None] = {}  # the oldest first; WebSockets are not among them

    class Bounded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            for gone in [each for each in opened if each not in self.connections]:
                del opened[gone]
            opened[self] = None
            idle = [each for each in opened if each.cycle is None or each.cycle.response_complete]
            if len(idle) > most:
                del opened[idle[0]]  # it is closed a little later
                idle[0].transport.abort()

    return Bounded


def is_loopback(address: str) -> bool:
    """Return whether an address is reached from this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _started(url: str, say: Callable[[str], None], open_browser: bool) -> None:
    say(url)
    if open_browser:
        webbrowser.open(url)


class _Server(uvicorn.Server):
    """Uvicorn's server, which reports when it is ready, and ends without raising the signal again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None], *, signals: bool = True) -> None:
        super().__init__(config)
        self._ready = ready
        self._signals = stop_signals() if signals else ()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        kept = {number: signal.signal(number, self.handle_exit) for number in self._signals}
        try:
            yield
        finally:
            for number, handler in kept.items():
                signal.signal(number, handler)


def _listening(address: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(address).version == 6 else socket.AF_INET
    except ValueError:
        raise ServeError(f"{address} is not an address of this machine: use one such as 127.0.0.1") from None
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except OSError as error:
        made.close()
        raise ServeError(
            f"cannot listen at {address}, port {port}: {error.strerror}; use another --port"
        ) from None
    return made
