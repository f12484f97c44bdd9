"""Client of BMv2's data plane over gRPC (its services/dataplane_interface.proto), without network interfaces."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fanin.assurance.differential.client import SwitchError

_FIELD = descriptor_pb2.FieldDescriptorProto
_FIELDS = (
    ("id", _FIELD.TYPE_UINT64),
    ("device_id", _FIELD.TYPE_UINT64),
    ("port", _FIELD.TYPE_UINT32),
    ("packet", _FIELD.TYPE_BYTES),
)
_SECONDS = 60.0  # to wait for a switch's answer, or for the end of a batch
_POLL_SECONDS = 0.02
_NOT_STARTED = "not ready"
_BATCH = (
    20  # far below the 64 packets that a port of BMv2 queues, even if each leaves twice through the same one
)


def _message() -> Any:
    """Return the message type. Requests and responses have the same fields."""
    file = descriptor_pb2.FileDescriptorProto(name="fanin/dataplane.proto", package="fanin", syntax="proto3")
    message = file.message_type.add(name="PacketOnStream")
    for number, (name, kind) in enumerate(_FIELDS, start=1):
        message.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fanin.PacketOnStream"))


_PacketOnStream = _message()


def exchange(
    address: str, device_id: int, packets: Sequence[tuple[int, bytes]]
) -> list[list[tuple[int, bytes]]]:
    """Send packets (port, bytes) and return, for each, those that left because of it, in the order of sending.

    Raises:
        SwitchError: The switch is not there, has ended, or does not finish.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=_SECONDS)
            return _exchange(channel, device_id, packets)
        except grpc.FutureTimeoutError:
            raise SwitchError(f"no answer on {address} for {_SECONDS:g} s") from None
        except grpc.RpcError as error:
            raise SwitchError(f"has ended while it processed packets: {error.details()}") from None


def _exchange(
    channel: grpc.Channel, device_id: int, packets: Sequence[tuple[int, bytes]]
) -> list[list[tuple[int, bytes]]]:
    call = channel.stream_stream(
        "/p4.bm.DataplaneInterface/PacketStream",
        request_serializer=_PacketOnStream.SerializeToString,
        response_deserializer=_PacketOnStream.FromString,
    )
    outputs: list[list[tuple[int, bytes]]] = [[] for _ in packets]
    for first in range(0, len(packets), _BATCH):
        batch = [
            _PacketOnStream(id=index + 1, device_id=device_id, port=port, packet=packet)
            for index, (port, packet) in enumerate(packets[first : first + _BATCH], start=first)
        ]
        try:
            for response in _responses(call, batch):
                outputs[response.id - 1].append((response.port, response.packet))
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            which = f"{first + 1} to {first + len(batch)}"
            raise SwitchError(f"has not processed packets {which} within {_SECONDS:g} s") from None
    return outputs


def _responses(call: Any, batch: Sequence[Any]) -> list[Any]:
    """Return the answers to a stream of packets, which ends when all of them have been processed.

    BMv2 serves P4Runtime before its data plane has started, and refuses packets until then.
    """
    until = time.monotonic() + _SECONDS
    while True:
        try:
            return list(call(iter(batch), timeout=_SECONDS))
        except grpc.RpcError as error:
            if error.details() != _NOT_STARTED or time.monotonic() >= until:
                raise
        time.sleep(_POLL_SECONDS)
