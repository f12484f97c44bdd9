"""The management service, on the same port as P4Runtime: links, traces, and everything else that P4Runtime lacks.

Messages are `google.protobuf.Struct`: JSON-like objects, whose numbers are doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

SERVICE = "fanin.p4switch.Management"

_PATIENCE = 10.0  # seconds to wait for a call

Method = Callable[[dict[str, Any]], dict[str, Any]]
Stream = Callable[[dict[str, Any]], Iterator[dict[str, Any]]]


class ManagementError(Exception):
    """Invalid request, or a switch that does not answer. The message explains what to change."""


def handler(calls: Mapping[str, Method], streams: Mapping[str, Stream]) -> grpc.GenericRpcHandler:
    """Return the handler for a gRPC server. A ManagementError becomes INVALID_ARGUMENT with its text.

    A stream without news should yield {} a few times per second. That is not sent, but makes it possible to close the
    stream when its caller has gone.
    """

    def answer(call: Method) -> Callable[[Struct, grpc.ServicerContext], Struct]:
        def serve(request: Struct, context: grpc.ServicerContext) -> Struct:
            try:
                return _packed(call(_unpacked(request)))
            except ManagementError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return serve

    def tell(stream: Stream) -> Callable[[Struct, grpc.ServicerContext], Iterator[Struct]]:
        def serve(request: Struct, context: grpc.ServicerContext) -> Iterator[Struct]:
            try:
                for message in stream(_unpacked(request)):
                    if not context.is_active():
                        return
                    if message:
                        yield _packed(message)
            except ManagementError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))

        return serve

    form = {"request_deserializer": Struct.FromString, "response_serializer": Struct.SerializeToString}
    methods = {
        name: grpc.unary_unary_rpc_method_handler(answer(call), **form) for name, call in calls.items()
    }
    methods |= {
        name: grpc.unary_stream_rpc_method_handler(tell(stream), **form) for name, stream in streams.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, methods)


class ManagementClient:
    """Client for the management calls of the switch that serves P4Runtime at `address` (host:port).

    It is a context manager.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel = grpc.insecure_channel(address)
        self._form = {
            "request_serializer": Struct.SerializeToString,
            "response_deserializer": Struct.FromString,
        }

    def __enter__(self) -> ManagementClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        """Make a call and return its result.

        Raises:
            ManagementError: If the switch rejects it, does not know the method, or does not answer.
        """
        rpc = self._channel.unary_unary(f"/{SERVICE}/{method}", **self._form)
        try:
            return _unpacked(rpc(_packed(request), timeout=_PATIENCE))
        except grpc.RpcError as error:
            raise self._explained(method, error) from None

    def stream(self, method: str, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield messages until the switch ends the stream, or the caller closes it.

        Raises:
            ManagementError: If the switch rejects it, does not know the method, or does not answer.
        """
        rpc = self._channel.unary_stream(f"/{SERVICE}/{method}", **self._form)
        messages = rpc(_packed(request))
        try:
            yield from map(_unpacked, messages)
        except grpc.RpcError as error:
            raise self._explained(method, error) from None
        finally:
            messages.cancel()

    def close(self) -> None:
        """Close the connection, which ends its streams."""
        self._channel.close()

    def _explained(self, method: str, error: grpc.RpcError) -> ManagementError:
        match error.code():
            case grpc.StatusCode.INVALID_ARGUMENT:
                return ManagementError(error.details())
            case grpc.StatusCode.UNIMPLEMENTED:
                return ManagementError(
                    f"the switch at {self._address} has no {method}; BMv2 has no management calls"
                )
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.DEADLINE_EXCEEDED:
                return ManagementError(f"no switch answers at {self._address}")
            case _:
                return ManagementError(f"{method} at {self._address} failed: {error.details()}")


def _packed(message: dict[str, Any]) -> Struct:
    packed = Struct()
    packed.update(message)
    return packed


def _unpacked(message: Struct) -> dict[str, Any]:
    return {key: _plain(value) for key, value in MessageToDict(message).items()}


def _plain(value: Any) -> Any:
    """Return the value with whole numbers as int, which the wire format turns into float."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case _:
            return value
