"""P4Runtime errors, raised anywhere below the service and converted to gRPC statuses by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NoReturn

import grpc

from fanin.p4switch.entries import TableError
from fanin.p4switch.p4runtime.proto import p4r, rpc_status

_MESSAGE_BYTES = 16 << 10
_MAX_MESSAGE = 2000  # characters
_MAX_LISTED = 30  # names in one
_MAX_ECHO_BYTES = 4 << 10  # of a rejected stream message


class P4RuntimeError(Exception):
    """Request that cannot be carried out: a canonical gRPC code and a message that explains what to change."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        if len(message) > _MAX_MESSAGE:  # it quotes what a client has sent
            message = f"{message[:_MAX_MESSAGE]} … ({len(message):,} characters)"
        super().__init__(message)
        self.code = code
        self.message = message

    @classmethod
    def of(cls, error: TableError) -> P4RuntimeError:
        """Convert the engine's error. Its codes have gRPC's names."""
        return cls(grpc.StatusCode[error.code.name], error.message)


def listed(names: Mapping[int, str]) -> str:
    """List the names of objects with their ids, for the message on an id that does not exist."""
    shown = [f"{name} ({number})" for number, name in islice(names.items(), _MAX_LISTED)]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "") or "none"


def invalid(message: str) -> P4RuntimeError:
    """Return an INVALID_ARGUMENT error."""
    return P4RuntimeError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> P4RuntimeError:
    """Return a NOT_FOUND error."""
    return P4RuntimeError(grpc.StatusCode.NOT_FOUND, message)


def denied(message: str) -> P4RuntimeError:
    """Return a PERMISSION_DENIED error."""
    return P4RuntimeError(grpc.StatusCode.PERMISSION_DENIED, message)


def unimplemented(message: str) -> P4RuntimeError:
    """Return an UNIMPLEMENTED error."""
    return P4RuntimeError(grpc.StatusCode.UNIMPLEMENTED, message)


def stream_error(error: P4RuntimeError, request: p4r.StreamMessageRequest) -> p4r.StreamMessageResponse:
    """Return the report of a rejected stream message (P4Runtime specification, "Stream Error Reporting").

    It contains the message itself unless that is long, because reports wait in memory until a client reads them.
    """
    report = p4r.StreamError(canonical_code=error.code.value[0], message=error.message)
    if request.ByteSize() > _MAX_ECHO_BYTES:
        return p4r.StreamMessageResponse(error=report)
    match request.WhichOneof("update"):
        case "packet":
            report.packet_out.packet_out.CopyFrom(request.packet)
        case "digest_ack":
            report.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
        case _:
            report.other.other.CopyFrom(request.other)
    return p4r.StreamMessageResponse(error=report)


def abort(context: grpc.ServicerContext, error: P4RuntimeError) -> NoReturn:
    """End an RPC with an error that concerns all of it."""
    context.abort(error.code, error.message)
    raise AssertionError("ServicerContext.abort raises")


def abort_batch(context: grpc.ServicerContext, errors: Sequence[P4RuntimeError | None]) -> NoReturn:
    """End a Write or Read RPC some of whose elements failed; `errors` has an item for each, None for success.

    The code is UNKNOWN, and the details contain one `p4.v1.Error` for each element, in order (P4Runtime specification,
    "Error Reporting Messages"). They are sent in the trailing metadata, whose size clients limit (gRPC to 8 KB by
    default, finsy to 64 KB). If many elements fail, the later ones have a code without a message.
    """
    failed = [error for error in errors if error is not None]
    first = next(number for number, error in enumerate(errors) if error is not None)
    message = f"{len(failed)} of {len(errors)} failed, the first is number {first}: {failed[0].message}"
    status = rpc_status.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=message)
    room = _MESSAGE_BYTES
    for error in errors:
        detail = p4r.Error()
        if error is not None:
            detail.canonical_code = error.code.value[0]
            room -= len(error.message)
            if room > 0:
                detail.message = error.message
        status.details.add().Pack(detail)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, message)
    raise AssertionError("ServicerContext.abort raises")
