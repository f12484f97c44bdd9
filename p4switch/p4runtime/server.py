"""The P4Runtime service on gRPC: streams, arbitration, and requests on the device's pipeline.

It uses gRPC's threaded server. On two cores that answers as many small requests per second as grpc.aio (2,100), and
grpc.aio cancels requests when thousands are outstanding. A stream occupies one thread while it is open.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc

from fanin.p4switch.entries import TableError
from fanin.p4switch.p4runtime.arbitration import Arbitration, Client
from fanin.p4switch.p4runtime.batches import all_or_none, attempt
from fanin.p4switch.p4runtime.device import Device, LoadedPipeline, no_pipeline
from fanin.p4switch.p4runtime.entities.digests import Digests
from fanin.p4switch.p4runtime.entities.registry import Entities
from fanin.p4switch.p4runtime.errors import (
    P4RuntimeError,
    abort,
    abort_batch,
    denied,
    invalid,
    not_found,
    stream_error,
    unimplemented,
)
from fanin.p4switch.p4runtime.proto import p4r, p4r_grpc
from fanin.p4switch.p4runtime.roles import RoleAccess

_API_VERSION = "1.5.0"
_MAX_STREAMS = 64
_MAX_ENDING = 32  # streams that have made room for others and have not ended yet
_OTHER_THREADS = 128  # for requests, the streams of other services, and streams that are ending
_ENTITIES_PER_RESPONSE = 1000  # well under the 4 MB that clients accept in one message
_MAX_REQUEST_BYTES = 256 << 20
_MAX_CALLS = 4096  # at a time, of one connection
_HANDSHAKE_MILLISECONDS = 10_000
_ENDING_SECONDS = 2.0  # after which a stream that has the election id of a new one is not about to end

_Set = p4r.SetForwardingPipelineConfigRequest
_Get = p4r.GetForwardingPipelineConfigRequest

_log = logging.getLogger(__name__)


class P4RuntimeService(p4r_grpc.P4RuntimeServicer):
    """P4Runtime service for one device. One lock makes its updates atomic.

    Args:
        device: The device.
        device_id: Its id.
        empty_config: Whether the config that a controller reads before one was set is empty. Otherwise reading it
            fails, as in BMv2.
    """

    def __init__(self, device: Device, device_id: int, *, empty_config: bool = True) -> None:
        self._device = device
        self._device_id = device_id
        self._empty_config = empty_config
        self._configuring = threading.Lock()
        self._arbitration = Arbitration(device_id)
        self._left = threading.Condition(device.lock)  # some client has
        # How to cancel each stream, oldest first: those that are open, and those that have made room for others.
        self._streams: dict[Client, Callable[[], bool]] = {}
        self._ending: dict[Client, Callable[[], bool]] = {}

    # Streams

    def StreamChannel(  # noqa: N802
        self, request_iterator: Iterator[p4r.StreamMessageRequest], context: grpc.ServicerContext
    ) -> Iterator[p4r.StreamMessageResponse]:
        """Serve a stream: arbitration, and packets to and from the controller."""
        client = Client(context.peer().rpartition(":")[0])
        with self._device.lock:
            self._admit(client, context.cancel)
        threading.Thread(target=self._receive, args=(client, request_iterator), daemon=True).start()
        try:
            while (message := client.take()) is not None:
                if isinstance(message, P4RuntimeError):
                    abort(context, message)
                yield message
        finally:
            if client.lost:
                _log.warning("a stream has ended; %d packets to its controller were lost", client.lost)
            self._leave(client)
            with self._device.lock:
                self._streams.pop(client, None)
                self._ending.pop(client, None)

    def _leave(self, client: Client) -> None:
        with self._device.lock:
            self._arbitration.leave(client)
            self._device.controllers.primaries = self._arbitration.primaries()
            self._left.notify_all()

    def _admit(self, client: Client, cancel: Callable[[], bool]) -> None:
        """Make room for a stream; `cancel` ends it at once, without a message."""
        if len(self._streams) >= _MAX_STREAMS:
            spare = self._spare()
            self._ending[spare] = self._streams.pop(spare)
            self._arbitration.leave(spare)
            spare.end(
                f"{_MAX_STREAMS} streams are open, and another controller needs one: this one was not primary"
            )
            if (
                len(self._ending) > _MAX_ENDING
            ):  # the controller does not read the message, and keeps a thread
                next(iter(self._ending.values()))()
        self._streams[client] = cancel

    def _spare(self) -> Client:
        """Return the stream that makes room for another; there is one, as fewer than all can be primary.

        A stream that its controller has closed or that has sent no arbitration update comes first, then one of the
        address that has the most streams, then the lowest election id, then the oldest.
        """
        primaries = self._arbitration.primaries()
        at = Counter(client.address for client in self._streams)
        return max(
            (client for client in self._streams if client not in primaries),
            key=lambda client: (
                client.has_left or client.role is None,
                at[client.address],
                -(client.election_id or 0),
            ),
        )

    def _receive(self, client: Client, requests: Iterator[p4r.StreamMessageRequest]) -> None:
        try:
            for request in requests:
                self._on_stream_message(client, request)
                # It may have 100 MB, and this frame outlives the stream: gRPC's last error, a cycle, holds it.
                del request
        except P4RuntimeError as error:
            client.put(error.with_traceback(None))  # whose frames hold the request
        except grpc.RpcError:
            _log.debug("a stream broke")
        except Exception:
            _log.exception("a stream message failed")
            client.put(P4RuntimeError(grpc.StatusCode.INTERNAL, "the switch failed: see its log"))
        finally:
            # A client that has closed its side is not live, even if the messages to it cannot be sent.
            self._leave(client)
            client.put(None)

    def _on_stream_message(self, client: Client, request: p4r.StreamMessageRequest) -> None:
        match request.WhichOneof("update"):
            case "arbitration":
                with self._device.lock:
                    # Streams have threads of their own, so that the end of one may be noticed after a message
                    # that its controller sent later on another.
                    self._left.wait_for(
                        lambda: client.has_left or not self._arbitration.is_used(client, request.arbitration),
                        _ENDING_SECONDS,
                    )
                    self._arbitration.update(client, request.arbitration)
                    self._device.controllers.primaries = self._arbitration.primaries()
            case "packet":
                try:
                    with self._device.lock:
                        if client not in self._device.controllers.primaries:
                            raise denied("Not primary: only the primary may send packets")
                        self._device.packet_out(request.packet)
                except P4RuntimeError as error:
                    _log.warning("packet-out refused: %s", error.message)
                    client.offer(stream_error(error, request))
            case "digest_ack":
                try:
                    with self._device.lock:
                        if client not in self._device.controllers.primaries:
                            raise denied("Not primary: only the primary may acknowledge digests")
                        self._pipeline().entities.of(Digests).acknowledge(request.digest_ack)
                except P4RuntimeError as error:
                    client.offer(stream_error(error, request))
            case _:
                client.offer(
                    stream_error(
                        unimplemented(
                            "this stream message is not supported; send arbitration, packet or digest_ack"
                        ),
                        request,
                    )
                )

    # Entities

    def Write(self, request: p4r.WriteRequest, context: grpc.ServicerContext) -> p4r.WriteResponse:  # noqa: N802
        """Carry out a batch of updates in order: each on its own, or all or none."""
        try:
            self._check_device(request.device_id)
            with self._device.lock:
                access = self._arbitration.require_primary(request)
                pipeline = self._pipeline()
                match request.atomicity:
                    case p4r.WriteRequest.CONTINUE_ON_ERROR:
                        errors = [attempt(pipeline.entities, update, access) for update in request.updates]
                    case p4r.WriteRequest.ROLLBACK_ON_ERROR:
                        errors = all_or_none(pipeline.entities, request.updates, access)
                    case p4r.WriteRequest.DATAPLANE_ATOMIC:
                        with pipeline.engine.lock:
                            errors = all_or_none(pipeline.entities, request.updates, access)
                    case mode:
                        raise invalid(f"atomicity {mode} does not exist")
        except P4RuntimeError as error:
            abort(context, error)
        if any(errors):
            _log.info("updates refused: %s", "; ".join(str(error) for error in errors if error))
            abort_batch(context, errors)
        return p4r.WriteResponse()

    def Read(self, request: p4r.ReadRequest, context: grpc.ServicerContext) -> Iterator[p4r.ReadResponse]:  # noqa: N802
        """Yield the entities that the request selects, all at the same moment."""
        responses: list[bytes] = []  # serialized, as a table may have a million entries
        errors: list[P4RuntimeError | None] = []
        try:
            self._check_device(request.device_id)
            with self._device.lock:
                entities = self._pipeline().entities
                access = self._arbitration.access(request.role)
                for query in request.entities:
                    errors.append(_collect(entities, query, access, responses))
        except P4RuntimeError as error:
            abort(context, error)
        for response in responses:
            yield p4r.ReadResponse.FromString(response)
        if any(errors):
            abort_batch(context, errors)

    # Pipelines

    def SetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.SetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.SetForwardingPipelineConfigResponse:
        """Verify, save or commit a pipeline. The present one forwards until the new one is ready."""
        try:
            self._check_device(request.device_id)
            # Compiling may take seconds, during which writes and streams continue.
            with self._configuring:
                with self._device.lock:
                    if not self._arbitration.require_primary(request).can_push_pipeline:
                        raise denied(
                            f"the role {request.role!r} may not set a pipeline: its config forbids it"
                        )
                pipeline = self._load(request)
                with self._device.lock:
                    self._arbitration.require_primary(request)
                    self._install(request.action, pipeline)
        except P4RuntimeError as error:
            _log.error("pipeline refused: %s", error)
            abort(context, error)
        _log.info("pipeline: %s", _Set.Action.Name(request.action))
        return p4r.SetForwardingPipelineConfigResponse()

    def _load(self, request: p4r.SetForwardingPipelineConfigRequest) -> LoadedPipeline | None:
        if request.action == _Set.COMMIT:
            if request.HasField("config"):
                raise invalid("COMMIT takes the saved config: leave config unset")
            return None
        if request.action not in _Set.Action.values() or request.action == _Set.UNSPECIFIED:
            raise invalid("the request has no action: give VERIFY, VERIFY_AND_COMMIT or another")
        return self._device.load(request.config)

    def _install(
        self, action: p4r.SetForwardingPipelineConfigRequest.Action.ValueType, pipeline: LoadedPipeline | None
    ) -> None:
        match action:
            case _Set.VERIFY_AND_SAVE if pipeline:
                self._device.save(pipeline)
            case _Set.VERIFY_AND_COMMIT if pipeline:
                self._device.commit(pipeline)
            case _Set.RECONCILE_AND_COMMIT if pipeline:
                self._device.reconcile(pipeline)
            case _Set.COMMIT:
                self._device.commit_saved()

    def GetForwardingPipelineConfig(  # noqa: N802
        self, request: p4r.GetForwardingPipelineConfigRequest, context: grpc.ServicerContext
    ) -> p4r.GetForwardingPipelineConfigResponse:
        """Return the config that was set, or the parts requested; empty if none was set."""
        try:
            self._check_device(request.device_id)
            if request.response_type not in _Get.ResponseType.values():
                there = ", ".join(f"{name} ({number})" for name, number in _Get.ResponseType.items())
                raise invalid(f"response_type {request.response_type} does not exist; there are {there}")
        except P4RuntimeError as error:
            abort(context, error)
        response = p4r.GetForwardingPipelineConfigResponse()
        with self._device.lock:
            pipeline = self._device.pipeline
        if pipeline is None:
            if not self._empty_config:
                abort(context, no_pipeline())
            return response
        config, kind = pipeline.config, request.response_type
        response.config.SetInParent()
        if config.HasField("cookie"):
            response.config.cookie.CopyFrom(config.cookie)
        if kind in (_Get.ALL, _Get.P4INFO_AND_COOKIE):
            response.config.p4info.CopyFrom(config.p4info)
        if kind in (_Get.ALL, _Get.DEVICE_CONFIG_AND_COOKIE):
            response.config.p4_device_config = config.p4_device_config
        return response

    def Capabilities(  # noqa: N802
        self, request: p4r.CapabilitiesRequest, context: grpc.ServicerContext
    ) -> p4r.CapabilitiesResponse:
        """Return the supported version of P4Runtime."""
        try:
            if request.device_id:
                self._check_device(request.device_id)
        except P4RuntimeError as error:
            abort(context, error)
        return p4r.CapabilitiesResponse(p4runtime_api_version=_API_VERSION)

    def _check_device(self, device_id: int) -> None:
        if device_id != self._device_id:
            raise not_found(f"there is no device {device_id} here, only {self._device_id}")

    def _pipeline(self) -> LoadedPipeline:
        if self._device.pipeline is None:
            raise no_pipeline()
        return self._device.pipeline


def _collect(
    entities: Entities, query: p4r.Entity, access: RoleAccess, responses: list[bytes]
) -> P4RuntimeError | None:
    """Add the entities that a query selects to the responses. Return the error if it fails, else None."""
    response = p4r.ReadResponse()
    try:
        for entity in entities.read(query):
            if entities.allows(access, entity):
                response.entities.append(entity)
                if len(response.entities) == _ENTITIES_PER_RESPONSE:
                    responses.append(response.SerializeToString())
                    response.Clear()
    except P4RuntimeError as error:
        return error
    except TableError as error:
        return P4RuntimeError.of(error)
    finally:
        if response.entities:
            responses.append(response.SerializeToString())
    return None


def serve(
    service: P4RuntimeService,
    address: str,
    *others: grpc.GenericRpcHandler,
    credentials: grpc.ServerCredentials | None = None,
) -> tuple[grpc.Server, int]:
    """Start to serve the service and `others`.

    Args:
        service: The P4Runtime service.
        address: The address, host:port. Port 0 is any free port.
        others: Handlers of other services.
        credentials: The credentials for TLS, or None.

    Returns:
        The server and its port.

    Raises:
        OSError: If the address cannot be bound.
    """
    server = grpc.server(
        ThreadPoolExecutor(_MAX_STREAMS + _OTHER_THREADS, "p4runtime"),
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", _MAX_REQUEST_BYTES),
            ("grpc.max_concurrent_streams", _MAX_CALLS),
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MILLISECONDS),
            # A controller whose machine has crashed never closes its stream.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
        ],
    )
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    server.add_generic_rpc_handlers(others)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        port = 0
    if port == 0:
        raise OSError(
            f"cannot listen on {address}: another process listens there, or it is not an address of this host"
        )
    server.start()
    return server, port
