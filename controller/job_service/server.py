"""The job service over gRPC, on a Unix socket; jobs.proto describes the calls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio
from pydantic import BaseModel

from fanin.controller.errors import ControllerError
from fanin.controller.job_service import jobs_pb2 as pb
from fanin.controller.job_service.addresses import address_of
from fanin.controller.job_service.messages import fill, line_of, message_of
from fanin.controller.jobs.membership import JobService, NoMessageError, NoRequestError, RefusedError

SERVICE = pb.DESCRIPTOR.services_by_name["Jobs"].full_name

_OPTIONS = [
    ("grpc.max_receive_message_length", 1 << 16),
    # A member whose machine has failed sends nothing: it is asked after 10 s of silence, and has 20 s to answer.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 20_000),  # otherwise it is 60 s, regardless of the option above
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # members may ask, too
]
_MAX_UNREAD = 256  # messages, not counting those buffered by gRPC and by the kernel, about 64 KiB each

_Context = grpc.aio.ServicerContext[Any, Any]


class Inspector(Protocol):
    """The inspection of a network, implemented in testbed/monitoring/inspector.py."""

    async def look(self) -> BaseModel:
        """Return a snapshot of the network in the form of LookResponse."""

    async def cells(self, name: str) -> Mapping[str, BaseModel]:
        """Return what each switch of a job holds in its slots, in the form of SwitchCells.

        Raises:
            ControllerError: If there is no job called `name`.
        """


class _Stream:
    """The stream to a member. `unread` is set if the member does not read its messages."""

    def __init__(self) -> None:
        self._unsent: asyncio.Queue[pb.FromService | str] = asyncio.Queue()
        self.unread = asyncio.Event()

    def tell(self, message: Mapping[str, Any]) -> None:
        if self._unsent.qsize() < _MAX_UNREAD:
            self._unsent.put_nowait(message_of(message))
        else:
            self.unread.set()

    def dismiss(self, why: str) -> None:
        self._unsent.put_nowait(why)

    async def send(self, context: _Context) -> str:
        """Send all messages until the member is dismissed, and return why it is."""
        while isinstance(message := await self._unsent.get(), pb.FromService):
            await context.write(message)
        return message


class _Servicer:
    """The calls, by their names in jobs.proto."""

    def __init__(self, service: JobService, inspector: Inspector) -> None:
        self._service = service
        self._inspector = inspector

    def handler(self) -> grpc.GenericRpcHandler:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods = {
            "Join": stream(self._join, pb.ToService.FromString, pb.FromService.SerializeToString),
            "List": unary(self._list, pb.ListRequest.FromString, pb.ListResponse.SerializeToString),
            "Revoke": unary(self._revoke, pb.RevokeRequest.FromString, pb.RevokeResponse.SerializeToString),
            "Absent": grpc.unary_stream_rpc_method_handler(
                self._absent, pb.AbsentRequest.FromString, pb.AbsentResponse.SerializeToString
            ),
            "Look": unary(self._look, pb.LookRequest.FromString, pb.LookResponse.SerializeToString),
            "Cells": unary(self._cells, pb.CellsRequest.FromString, pb.CellsResponse.SerializeToString),
            "Times": unary(self._times, pb.TimesRequest.FromString, pb.TimesResponse.SerializeToString),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _join(self, _: object, context: _Context) -> None:
        # Sent now: abort() cannot send it while a message does.
        await context.send_initial_metadata(())
        stream = _Stream()
        tasks = {
            attending := asyncio.create_task(self._attend(stream, context)),
            sending := asyncio.create_task(stream.send(context)),
            asyncio.create_task(stream.unread.wait()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, sending.result())
            if not attending.done():
                await context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_UNREAD} messages wait to be read"
                )
            try:
                attending.result()
            except (NoRequestError, NoMessageError) as error:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except RefusedError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        finally:  # also if the client has gone
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attend(self, stream: _Stream, context: _Context) -> None:
        first = await context.read()
        if first is grpc.aio.EOF or first.WhichOneof("message") != "join":
            raise NoRequestError("the first message of a stream must be join")
        await self._service.attend(line_of(first)["join"], stream, _messages(context))

    async def _list(self, _: pb.ListRequest, __: _Context) -> pb.ListResponse:
        response = pb.ListResponse()
        fill(response, {"jobs": self._service.jobs.documents()})
        return response

    async def _revoke(self, request: pb.RevokeRequest, context: _Context) -> pb.RevokeResponse:
        try:
            await self._service.jobs.revoke(request.job)
        except ControllerError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.RevokeResponse()

    async def _absent(self, request: pb.AbsentRequest, context: _Context) -> None:
        with self._service.without(request.host, request.job):
            await context.write(pb.AbsentResponse())
            await asyncio.get_running_loop().create_future()  # until the caller has gone: that cancels this

    async def _look(self, _: pb.LookRequest, __: _Context) -> pb.LookResponse:
        response = pb.LookResponse()
        fill(response, (await self._inspector.look()).model_dump(mode="json"))
        return response

    async def _cells(self, request: pb.CellsRequest, context: _Context) -> pb.CellsResponse:
        response = pb.CellsResponse()
        try:
            found = await self._inspector.cells(request.job)
        except ControllerError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        fill(response, {"switches": {switch: cells.model_dump() for switch, cells in found.items()}})
        return response

    async def _times(self, request: pb.TimesRequest, context: _Context) -> pb.TimesResponse:
        response = pb.TimesResponse()
        try:
            found = self._service.jobs.times(request.job)
        except ControllerError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        fill(response, {"workers": [{"calls": calls} for calls in found]})
        return response


async def _messages(context: _Context) -> AsyncIterator[Mapping[str, Any]]:
    while (message := await context.read()) is not grpc.aio.EOF:
        yield line_of(message)


@asynccontextmanager
async def serving(service: JobService, inspector: Inspector, path: Path) -> AsyncIterator[None]:
    """Serve the service over gRPC at the Unix socket `path`, while inside."""
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_Servicer(service, inspector).handler(),))
    with address_of(path) as address:  # until it has stopped, which removes the socket
        server.add_insecure_port(f"unix:{address}")
        try:
            await server.start()  # here: if it is cancelled, the server is running all the same
            yield
        finally:
            await server.stop(None)
            path.unlink(missing_ok=True)
