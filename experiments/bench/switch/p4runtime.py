"""A switch process and a plain P4Runtime client of it: the same for p4switch and BMv2."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from finsy.proto import U128, p4r, p4r_grpc

from p4compiler import Compiled
from p4switch.engine.entries import ActionCall, Entry, Lpm, Ternary
from topologies.model import leaf_spine
from topologies.processes import SwitchLauncher, SwitchProcess

BATCH = 1000  # updates in a request
_ELECTION_ID = U128.encode(1)
_ANSWER_SECONDS = 60.0


class Client:
    """The primary controller of the switch at `address`; grpc.RpcError when it refuses."""

    def __init__(self, address: str, device_id: int) -> None:
        self._device_id = device_id
        self._channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)
        self._said: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        self._stream = self._stub.StreamChannel(iter(self._said.get, None))
        hello = p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=_ELECTION_ID)
        self._said.put(p4r.StreamMessageRequest(arbitration=hello))
        next(self._stream)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._said.put(None)
        self._channel.close()

    def set_pipeline(self, program: Compiled) -> None:
        """Makes the switch run a program, with empty tables."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self._device_id,
            election_id=_ELECTION_ID,
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
        )
        request.config.p4info.CopyFrom(program.p4info)
        request.config.p4_device_config = program.json_text().encode()
        self._stub.SetForwardingPipelineConfig(request, timeout=_ANSWER_SECONDS)

    def requests(self, program: Compiled, table: str, entries: Sequence[Entry]) -> Iterator[p4r.WriteRequest]:
        """The requests that insert these, BATCH of them in each; made one by one, for a million take 2 GB."""
        [known] = [t for t in program.p4info.tables if t.preamble.name == table]
        actions = {a.preamble.name: a.preamble.id for a in program.p4info.actions}
        for first in range(0, len(entries), BATCH):
            request = p4r.WriteRequest(device_id=self._device_id, election_id=_ELECTION_ID)
            for entry in entries[first : first + BATCH]:
                update = request.updates.add(type=p4r.Update.INSERT)
                _encode(update.entity.table_entry, known.preamble.id, entry, actions)
            yield request

    def write(self, requests: Iterable[p4r.WriteRequest]) -> float:
        """Sends them one after the other; the seconds that they took."""
        began = time.perf_counter()
        for request in requests:
            self._stub.Write(request, timeout=_ANSWER_SECONDS)
        return time.perf_counter() - began


def _encode(message: p4r.TableEntry, table: int, entry: Entry, actions: Mapping[str, int]) -> None:
    message.table_id = table
    message.priority = entry.key.priority
    for number, match in enumerate(entry.key.match, start=1):
        field = message.match.add(field_id=number)
        match match:
            case Lpm(value, length):
                field.lpm.value, field.lpm.prefix_len = _octets(value), length
            case Ternary(value, mask):
                field.ternary.value, field.ternary.mask = _octets(value), _octets(mask)
            case _:
                field.exact.value = _octets(match.value)  # type: ignore[union-attr, arg-type]
    assert isinstance(entry.action, ActionCall)
    action = message.action.action
    action.action_id = actions[entry.action.name]
    for number, argument in enumerate(entry.action.args, start=1):
        action.params.add(param_id=number, value=_octets(argument))


def _octets(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8))


@contextmanager
def running(launcher: SwitchLauncher, interfaces: Sequence[str], log: Path) -> Iterator[Client]:
    """A switch on the interfaces, ports 1, 2, …, and a session with it; NetworkError if it does not start."""
    [switch] = leaf_spine(0, 1, len(interfaces)).switches
    process = SwitchProcess(switch, launcher.command(switch, dict(enumerate(interfaces, start=1))), log)
    process.start()
    try:
        process.wait_ready()
        with Client(f"127.0.0.1:{switch.grpc_port}", switch.device_id) as client:
            yield client
    finally:
        process.stop()
