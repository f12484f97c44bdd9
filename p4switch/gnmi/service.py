"""The gNMI service: Capabilities, Get, Set and Subscribe on the tree of the switch's ports."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import grpc

from fanin.p4switch.gnmi import set as gnmi_set
from fanin.p4switch.gnmi.paths import LIST, Selected, absolute, names_one, path_of, select, text
from fanin.p4switch.gnmi.ports import SwitchPorts
from fanin.p4switch.gnmi.proto import gnmi
from fanin.p4switch.gnmi.schema import LEAVES, MODULES, Leaf, LeafValue
from fanin.p4switch.gnmi.subscriptions import Watch, watches
from fanin.p4switch.gnmi.values import ENCODINGS, check_encoding, encode, encode_json, node
from fanin.p4switch.p4runtime.errors import P4RuntimeError, abort, invalid, not_found

SERVICE = "gnmi.gNMI"
VERSION = "0.10.0"  # of gnmi.proto

_MAX_SUBSCRIPTIONS = 64
_NANOSECONDS = 1e9  # in a second

_CONFIGURED = {leaf.path[1:] for leaf in LEAVES if leaf.is_config}
_TYPES: dict[int, Callable[[Leaf], bool]] = {
    gnmi.GetRequest.ALL: lambda _: True,
    gnmi.GetRequest.CONFIG: lambda leaf: leaf.is_config,
    gnmi.GetRequest.STATE: lambda leaf: not leaf.is_config,
    gnmi.GetRequest.OPERATIONAL: lambda leaf: not leaf.is_config and leaf.path[1:] not in _CONFIGURED,
}

_Found = list[tuple[Selected, LeafValue]]
_Responses = Iterator[gnmi.SubscribeResponse]


class GnmiService:
    """gNMI service for the ports of one switch. Errors have a canonical code and name the path."""

    def __init__(self, ports: SwitchPorts) -> None:
        self._ports = ports
        self._setting = threading.Lock()
        self._subscriptions = threading.BoundedSemaphore(_MAX_SUBSCRIPTIONS)

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the handler for a gRPC server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods = {
            "Capabilities": (unary, _answering(self.capabilities), gnmi.CapabilityRequest),
            "Get": (unary, _answering(self.get), gnmi.GetRequest),
            "Set": (unary, _answering(self.set), gnmi.SetRequest),
            "Subscribe": (stream, self._subscribe, gnmi.SubscribeRequest),
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                name: kind(call, request.FromString, lambda response: response.SerializeToString())
                for name, (kind, call, request) in methods.items()
            },
        )

    def capabilities(self, _request: gnmi.CapabilityRequest) -> gnmi.CapabilityResponse:
        """Return models, encodings and version."""
        models = [
            gnmi.ModelData(name=name, organization="OpenConfig working group", version=version)
            for name, version in MODULES.items()
        ]
        return gnmi.CapabilityResponse(
            supported_models=models, supported_encodings=ENCODINGS, gNMI_version=VERSION
        )

    def get(self, request: gnmi.GetRequest) -> gnmi.GetResponse:
        """Return a notification for each path, with its leaves, or in JSON with its node as a whole.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT, NOT_FOUND or UNIMPLEMENTED for requests that are not supported.
        """
        check_encoding(request.encoding)
        if request.type not in _TYPES:
            raise invalid(f"there is no data type {request.type}")
        if not request.path:
            raise invalid("the request has no path; the root is a path without elements")
        wanted = _TYPES[request.type]
        response = gnmi.GetResponse()
        for path in request.path:
            elements = absolute(request.prefix, path)
            selected = select(elements, self._ports.names)
            if not selected and names_one(elements):
                known = ", ".join(self._ports.names) or "none"
                raise not_found(f"there is no {text(elements)}; interfaces: {known}")
            selected = [found for found in _of_models(selected, request.use_models) if wanted(found.leaf)]
            notification = response.notification.add(timestamp=time.time_ns())
            notification.prefix.target = request.prefix.target
            present = [(found, value) for found, value in self._read(selected).items() if value is not None]
            notification.update.extend(_updates(present, request.encoding))
        return response

    def set(self, request: gnmi.SetRequest) -> gnmi.SetResponse:
        """Apply a Set request as a whole, or raise an error and change nothing."""
        with self._setting:
            gnmi_set.apply(request, self._ports)
        response = gnmi.SetResponse(timestamp=time.time_ns(), prefix=request.prefix)
        for path in request.delete:
            response.response.add(path=path, op=gnmi.UpdateResult.DELETE)
        for update in request.replace:
            response.response.add(path=update.path, op=gnmi.UpdateResult.REPLACE)
        for update in request.update:
            response.response.add(path=update.path, op=gnmi.UpdateResult.UPDATE)
        return response

    def _read(self, selected: Iterable[Selected]) -> dict[Selected, LeafValue | None]:
        selected = list(selected)
        states = self._ports.read({found.name for found in selected})
        return {found: found.leaf.value(states[found.name]) for found in selected}

    # Subscriptions

    def _subscribe(
        self, requests: Iterator[gnmi.SubscribeRequest], context: grpc.ServicerContext
    ) -> _Responses:
        if not self._subscriptions.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_SUBSCRIPTIONS} subscriptions are open already"
            )
        try:
            first = next(requests, None)
            if first is not None:
                yield from self._serve(first, requests, context)
        except P4RuntimeError as error:
            abort(context, error)
        finally:
            self._subscriptions.release()

    def _serve(
        self,
        first: gnmi.SubscribeRequest,
        requests: Iterator[gnmi.SubscribeRequest],
        context: grpc.ServicerContext,
    ) -> _Responses:
        if not first.HasField("subscribe"):
            raise invalid("the first message of a stream has to be a subscription list")
        wanted = first.subscribe
        check_encoding(wanted.encoding)
        if not wanted.subscription:
            raise invalid("the subscription list is empty")
        parts = []
        for part in wanted.subscription:
            selected = select(absolute(wanted.prefix, part.path), self._ports.names)
            parts.append((part, _of_models(selected, wanted.use_models)))
        if wanted.mode == gnmi.SubscriptionList.STREAM:
            watched = [watch for part, selected in parts for watch in watches(part, selected)]
            yield from self._stream(wanted, watched, requests, context)
        elif wanted.mode in (gnmi.SubscriptionList.ONCE, gnmi.SubscriptionList.POLL):
            every = [found for _, selected in parts for found in selected]
            yield from self._all(wanted, every, skip=wanted.updates_only)
            if wanted.mode == gnmi.SubscriptionList.POLL:
                yield from self._poll(wanted, every, requests)
        else:
            raise invalid(f"there is no subscription mode {wanted.mode}")

    def _all(self, wanted: gnmi.SubscriptionList, every: Sequence[Selected], *, skip: bool) -> _Responses:
        if not skip:
            yield from _notify(wanted, self._read(every), deletes=False)
        yield gnmi.SubscribeResponse(sync_response=True)

    def _poll(
        self,
        wanted: gnmi.SubscriptionList,
        every: Sequence[Selected],
        requests: Iterator[gnmi.SubscribeRequest],
    ) -> _Responses:
        with suppress(grpc.RpcError):  # the caller has gone
            for request in requests:
                if not request.HasField("poll"):
                    raise invalid("the stream has a subscription already: open another one")
                yield from self._all(wanted, every, skip=wanted.updates_only)

    def _stream(
        self,
        wanted: gnmi.SubscriptionList,
        watched: Sequence[Watch],
        requests: Iterator[gnmi.SubscribeRequest],
        context: grpc.ServicerContext,
    ) -> _Responses:
        wake = threading.Event()
        refused: list[P4RuntimeError] = []

        def receive() -> None:
            with suppress(grpc.RpcError):
                for _ in requests:
                    refused.append(invalid("the stream has a subscription already: open another one"))
                    wake.set()

        context.add_callback(wake.set)
        threading.Thread(target=receive, name="gnmi subscription", daemon=True).start()
        with self._ports.listening(wake.set):
            every = [found for watch in watched for found in watch.selected]
            values = self._read(every)
            now = time.monotonic_ns()
            for watch in watched:
                watch.start(now, values)
            if not wanted.updates_only:
                yield from _notify(wanted, values, deletes=False)
            yield gnmi.SubscribeResponse(sync_response=True)
            while context.is_active():
                deadline = min((w.deadline for w in watched if w.deadline is not None), default=None)
                wake.wait(None if deadline is None else _seconds_until(deadline))
                wake.clear()
                if refused:
                    raise refused[0]
                values = self._read(every)
                now = time.monotonic_ns()
                for watch in watched:
                    yield from _notify(wanted, watch.look(now, values), deletes=True)


def _seconds_until(deadline: int) -> float:
    return min(max(0, deadline - time.monotonic_ns()) / _NANOSECONDS, threading.TIMEOUT_MAX)


def _answering(call: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return call(request)
        except P4RuntimeError as error:
            abort(context, error)

    return answer


def _of_models(selected: Sequence[Selected], models: Iterable[gnmi.ModelData]) -> list[Selected]:
    """Return the leaves that belong to these models; all if no models are given."""
    names = {model.name for model in models}
    if names - MODULES.keys():
        raise invalid(f"unknown models: {', '.join(names - MODULES.keys())}; there are {', '.join(MODULES)}")
    return [found for found in selected if not names or names.issuperset(found.leaf.modules)]


def _notify(
    wanted: gnmi.SubscriptionList, values: dict[Selected, LeafValue | None], *, deletes: bool
) -> _Responses:
    """Yield one notification with these leaves, unless there are none.

    A request without an encoding has the default, JSON. Clients that send such requests, finsy among them, expect the
    scalars that Stratum sends.
    """
    if not values:
        return
    encoding = gnmi.PROTO if wanted.encoding == gnmi.JSON else wanted.encoding
    response = gnmi.SubscribeResponse()
    notification = response.update
    notification.timestamp = time.time_ns()
    notification.prefix.target = wanted.prefix.target
    for found, value in values.items():
        path = path_of(found, len(LIST) + len(found.leaf.path))
        if value is not None:
            notification.update.add(path=path, val=encode(found.leaf, value, encoding))
        elif deletes:
            notification.delete.append(path)
    yield response


def _updates(present: _Found, encoding: int) -> Iterator[gnmi.Update]:
    """Yield the updates of a Get: leaf by leaf, or in JSON the nodes that the path selected."""
    if encoding == gnmi.PROTO:
        for found, value in present:
            path = path_of(found, len(LIST) + len(found.leaf.path))
            yield gnmi.Update(path=path, val=encode(found.leaf, value, encoding))
        return
    nodes: dict[tuple[Any, ...], _Found] = {}
    for found, value in present:
        below = found.leaf.path[: max(0, found.depth - len(LIST))]
        place = (found.depth, below, found.name if found.depth >= len(LIST) else "")
        nodes.setdefault(place, []).append((found, value))
    for leaves in nodes.values():
        ports: dict[str, list[tuple[Leaf, LeafValue]]] = {}
        for found, value in leaves:
            ports.setdefault(found.name, []).append((found.leaf, value))
        depth = leaves[0][0].depth
        yield gnmi.Update(
            path=path_of(leaves[0][0], depth), val=encode_json(node(ports, depth, encoding), encoding)
        )
