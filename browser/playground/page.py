"""The server's side of the playground: the list of programs, and a connection for each open page."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from fanin.browser.playground.presets import Preset, presets
from fanin.browser.playground.session import BusyError, Session, Sessions
from fanin.browser.server import Page

_WAITING = 16  # requests of one page
_TOO_MANY = 1013  # close codes of WebSocket: try again later
_FLOODED = 1008


def playground(sessions: Sessions, own: Preset | None = None) -> Page:
    """Return the playground.

    Args:
        sessions: The sessions of its pages.
        own: The user's program, which the page shows first.
    """
    offered = {each.name: each for each in (*([own] if own else []), *presets())}

    async def programs(_request: Request) -> Response:
        return JSONResponse(
            [{"name": each.name, "group": each.group, "title": each.title} for each in offered.values()]
        )

    async def program(request: Request) -> Response:
        found = offered.get(request.path_params["name"])
        if found is None:
            return JSONResponse({"error": "there is no such program"}, 404)
        return JSONResponse({"files": found.files(), "main": found.main.name, "stf": found.stf()})

    async def session(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            async with sessions.session() as taken:
                await _converse(websocket, taken)
        except BusyError as error:
            await websocket.close(_TOO_MANY, str(error))

    @contextlib.asynccontextmanager
    async def running() -> AsyncIterator[None]:
        async with sessions.prepared():
            yield

    routes = (
        Route("/programs", programs),
        Route("/programs/{name}", program),
        WebSocketRoute("/session", session),
    )
    return Page("play", routes, running)


async def _converse(websocket: WebSocket, session: Session) -> None:
    """Answer the requests of a page in their order, until it is closed."""
    requests: asyncio.Queue[str] = asyncio.Queue(_WAITING)

    async def answer() -> None:
        while True:
            await websocket.send_text(await session.ask(await requests.get()))

    answering = asyncio.create_task(answer())
    try:
        async for request in websocket.iter_text():
            requests.put_nowait(request)
    except asyncio.QueueFull:
        await websocket.close(_FLOODED, "too many requests at once")
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
