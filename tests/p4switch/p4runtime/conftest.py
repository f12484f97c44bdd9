"""A P4Runtime server on the real engine, and a plain gRPC controller to try it with."""

from __future__ import annotations

import json
import queue
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4i, p4r, p4r_grpc, rpc_status
from google.protobuf.message import Message

from fanin.p4compiler import compile_once
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from fanin.testbed.patience import setting

DEVICE_ID = 1
CPU_PORT = 255
TIMEOUT = 30 * setting()


@dataclass(frozen=True)
class Program:
    """A compiled P4 program with its objects' ids by name."""

    p4info: p4i.P4Info
    device_config: bytes

    @property
    def config(self) -> p4r.ForwardingPipelineConfig:
        return p4r.ForwardingPipelineConfig(p4info=self.p4info, p4_device_config=self.device_config)

    def id(self, alias: str) -> int:
        kinds = "tables actions counters registers direct_counters meters action_profiles value_sets digests"
        for kind in kinds.split():
            for described in getattr(self.p4info, kind):
                if described.preamble.alias == alias:
                    return described.preamble.id
        raise KeyError(alias)

    @staticmethod
    def exact(value: int, field_id: int = 1) -> p4r.FieldMatch:
        return p4r.FieldMatch(field_id=field_id, exact=p4r.FieldMatch.Exact(value=_octets(value)))

    @staticmethod
    def lpm(value: int, length: int, field_id: int = 1) -> p4r.FieldMatch:
        return p4r.FieldMatch(
            field_id=field_id, lpm=p4r.FieldMatch.LPM(value=_octets(value), prefix_len=length)
        )

    @staticmethod
    def ternary(value: int, mask: int, field_id: int = 1) -> p4r.FieldMatch:
        message = p4r.FieldMatch.Ternary(value=_octets(value), mask=_octets(mask))
        return p4r.FieldMatch(field_id=field_id, ternary=message)

    def action(self, alias: str, *args: bytes) -> p4r.Action:
        params = [p4r.Action.Param(param_id=i, value=value) for i, value in enumerate(args, 1)]
        return p4r.Action(action_id=self.id(alias), params=params)

    def entry(
        self, table: str, *match: p4r.FieldMatch, action: p4r.Action | None = None, **fields: Any
    ) -> p4r.Entity:
        entry = p4r.TableEntry(table_id=self.id(table), match=match, **fields)
        if action is not None:
            entry.action.action.CopyFrom(action)
        return p4r.Entity(table_entry=entry)

    def host(self, address: int, port: int = 1, **fields: Any) -> p4r.Entity:
        """An entry of the exact table."""
        return self.entry(
            "hosts", self.exact(address), action=self.action("forward", bytes([port])), **fields
        )

    def route(self, address: int, length: int, port: int = 1, **fields: Any) -> p4r.Entity:
        """An entry of the LPM table."""
        return self.entry(
            "routes", self.lpm(address, length), action=self.action("forward", bytes([port])), **fields
        )


def _octets(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


class Refused(Exception):
    """An RPC's error: its code, its message, and the code and message of each element of the batch."""

    def __init__(self, error: Any) -> None:
        super().__init__(f"{error.code().name}: {error.details()}")
        self.code: grpc.StatusCode = error.code()
        self.message: str = error.details()
        self.details: list[p4r.Error] = []
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                for packed in rpc_status.Status.FromString(value).details:
                    detail = p4r.Error()
                    packed.Unpack(detail)
                    self.details.append(detail)

    @property
    def codes(self) -> list[str]:
        names = {code.value[0]: code.name for code in grpc.StatusCode}
        return [names[detail.canonical_code] for detail in self.details]


class Controller:
    """A P4Runtime client with no mind of its own: it sends what it is told."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_metadata_size", 1 << 20)])
        self.stub = p4r_grpc.P4RuntimeStub(self._channel)
        self.election_id = 0
        self.role = ""
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._responses: Any = iter(())

    def open(self, timeout: float | None = TIMEOUT) -> None:
        self._responses = self.stub.StreamChannel(iter(self._requests.get, None), timeout=timeout)

    def send(self, **update: Any) -> None:
        self._requests.put(p4r.StreamMessageRequest(**update))

    def receive(self) -> p4r.StreamMessageResponse:
        try:
            return next(self._responses)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def announce(
        self,
        election_id: int | None,
        role: str = "",
        device_id: int = DEVICE_ID,
        config: Message | None = None,
    ) -> p4r.MasterArbitrationUpdate:
        """Send an arbitration update, with a config of the role's, and return the answer."""
        update = p4r.MasterArbitrationUpdate(device_id=device_id)
        if election_id is not None:
            self.election_id = election_id
            update.election_id.high, update.election_id.low = divmod(election_id, 1 << 64)
        if role:
            self.role = update.role.name = role
        if config is not None:
            update.role.config.Pack(config)
        self.send(arbitration=update)
        return self.receive().arbitration

    def become_primary(self, election_id: int = 1, role: str = "") -> Controller:
        self.open()
        assert self.announce(election_id, role).status.code == 0
        return self

    def close_stream(self) -> None:
        self._requests.put(None)

    def close(self) -> None:
        self.close_stream()
        self._channel.close()

    @staticmethod
    def refusal(request: Callable[..., Any], *args: Any, **kwargs: Any) -> Refused:
        """The error with which a request of this controller is refused."""
        with pytest.raises(Refused) as caught:
            request(*args, **kwargs)
        return caught.value

    def _call(self, rpc: Any, request: Any) -> Any:
        try:
            return rpc(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            raise Refused(error) from None

    def _election(self) -> p4r.Uint128:
        high, low = divmod(self.election_id, 1 << 64)
        return p4r.Uint128(high=high, low=low)

    def set_pipeline(
        self,
        config: p4r.ForwardingPipelineConfig | None,
        action: str = "VERIFY_AND_COMMIT",
    ) -> None:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=DEVICE_ID, election_id=self._election(), role=self.role, action=action, config=config
        )
        self._call(self.stub.SetForwardingPipelineConfig, request)

    def get_pipeline(self, response_type: str = "ALL") -> p4r.GetForwardingPipelineConfigResponse:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=DEVICE_ID, response_type=response_type)
        return self._call(self.stub.GetForwardingPipelineConfig, request)

    def write(self, *updates: tuple[str, p4r.Entity], **fields: Any) -> None:
        request = p4r.WriteRequest(
            device_id=DEVICE_ID,
            election_id=self._election(),
            role=self.role,
            updates=[p4r.Update(type=kind, entity=entity) for kind, entity in updates],
        )
        request.MergeFrom(p4r.WriteRequest(**fields))
        self._call(self.stub.Write, request)

    def insert(self, *entities: p4r.Entity) -> None:
        self.write(*(("INSERT", entity) for entity in entities))

    def modify(self, *entities: p4r.Entity) -> None:
        self.write(*(("MODIFY", entity) for entity in entities))

    def delete(self, *entities: p4r.Entity) -> None:
        self.write(*(("DELETE", entity) for entity in entities))

    def read(self, *entities: p4r.Entity, device_id: int = DEVICE_ID) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=device_id, role=self.role, entities=entities)
        try:
            return [
                entity
                for response in self.stub.Read(request, timeout=TIMEOUT)
                for entity in response.entities
            ]
        except grpc.RpcError as error:
            raise Refused(error) from None


@pytest.fixture(scope="session")
def program() -> Program:
    compiled = compile_once(Path(__file__).with_name("switch.p4"))
    return Program(compiled.p4info, json.dumps(compiled.json).encode())


@pytest.fixture
def device() -> Iterator[Device]:
    """A switch without ports."""
    device = Device({}, CPU_PORT, drop_port=511)
    yield device
    device.stop()


@pytest.fixture
def address(device: Device) -> Iterator[str]:
    """Where that switch, fresh and without a pipeline, serves."""
    server, port = serve(P4RuntimeService(device, DEVICE_ID), "127.0.0.1:0")
    yield f"127.0.0.1:{port}"
    server.stop(grace=0).wait()


@pytest.fixture
def connect(address: str) -> Iterator[Callable[[], Controller]]:
    """Makes controllers; their channels are closed in the end."""
    with ExitStack() as stack:

        def connect() -> Controller:
            controller = Controller(address)
            stack.callback(controller.close)
            return controller

        yield connect


@pytest.fixture
def controller(connect: Callable[[], Controller], program: Program) -> Controller:
    """The primary of a switch that runs the program."""
    controller = connect().become_primary()
    controller.set_pipeline(program.config)
    return controller
