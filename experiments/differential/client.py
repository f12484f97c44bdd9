"""A P4Runtime client with no mind of its own: it writes entities and tells which the switch refused."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping, Sequence

import grpc
from finsy.proto import U128, p4r, p4r_grpc

from experiments.scenario.compilers import CompiledProgram

DEVICE_ID = 1
_ELECTION_ID = 1
_SECONDS = 60.0
_OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.max_receive_message_length", 1 << 26)]

Counts = Mapping[str, tuple[int, int]]  # by counter and cell: packets and bytes, where they are not both 0


class SwitchError(RuntimeError):
    """A switch does not do what a comparison needs; the message says what it said."""


def connect(address: str) -> grpc.Channel:
    """A channel that is ready; SwitchError if nobody answers."""
    channel = grpc.insecure_channel(address, options=_OPTIONS)
    try:
        grpc.channel_ready_future(channel).result(timeout=_SECONDS)
    except grpc.FutureTimeoutError:
        raise SwitchError(f"no answer on {address} for {_SECONDS:g} s") from None
    return channel


class Client:
    """The primary controller of a switch that runs `program`; SwitchError if the switch refuses it."""

    def __init__(self, channel: grpc.Channel, program: CompiledProgram) -> None:
        self._p4info = program.p4info
        self._stub = p4r_grpc.P4RuntimeStub(channel)
        self._requests: queue.SimpleQueue[p4r.StreamMessageRequest | None] = queue.SimpleQueue()
        self._stream = self._stub.StreamChannel(iter(self._requests.get, None))
        update = p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, election_id=U128.encode(_ELECTION_ID))
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        try:
            next(self._stream)
            self._stub.SetForwardingPipelineConfig(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=DEVICE_ID,
                    election_id=U128.encode(_ELECTION_ID),
                    action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                    config=p4r.ForwardingPipelineConfig(
                        p4info=program.p4info, p4_device_config=program.device_config
                    ),
                ),
                timeout=_SECONDS,
            )
        except grpc.RpcError as error:
            self.close()
            raise SwitchError(f"refuses the program: {error.details()}") from None

    def close(self) -> None:
        """Ends the session."""
        self._requests.put(None)

    def insert(self, entity: p4r.Entity) -> bool:
        """Whether the switch took it."""
        request = p4r.WriteRequest(
            device_id=DEVICE_ID,
            election_id=U128.encode(_ELECTION_ID),
            updates=[p4r.Update(type=p4r.Update.INSERT, entity=entity)],
        )
        try:
            self._stub.Write(request, timeout=_SECONDS)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                raise SwitchError(f"has ended: {error.details()}") from None
            return False
        return True

    def counts(self, entities: Sequence[p4r.Entity]) -> Counts:
        """All counters, and the direct counters of these table entries."""
        return dict(self._indirect()) | dict(self._direct(entities))

    def _indirect(self) -> Iterator[tuple[str, tuple[int, int]]]:
        for counter in self._p4info.counters:
            wanted = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=counter.preamble.id))
            for entity in self._read(wanted):
                cell = entity.counter_entry
                if cell.data.packet_count or cell.data.byte_count:
                    name = f"{counter.preamble.name}[{cell.index.index}]"
                    yield name, (cell.data.packet_count, cell.data.byte_count)

    def _direct(self, entities: Sequence[p4r.Entity]) -> Iterator[tuple[str, tuple[int, int]]]:
        tables = {counter.direct_table_id for counter in self._p4info.direct_counters}
        names = {table.preamble.id: table.preamble.name for table in self._p4info.tables}
        for index, entity in enumerate(entities):
            entry = entity.table_entry
            if not entity.HasField("table_entry") or entry.table_id not in tables:
                continue
            key = p4r.TableEntry(table_id=entry.table_id, match=entry.match, priority=entry.priority)
            for read in self._read(p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=key))):
                data = read.direct_counter_entry.data
                if data.packet_count or data.byte_count:
                    name = f"{names[entry.table_id]}, direct counter of entry {index}"
                    yield name, (data.packet_count, data.byte_count)

    def _read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=DEVICE_ID, entities=[entity])
        try:
            responses = list(self._stub.Read(request, timeout=_SECONDS))
        except grpc.RpcError as error:
            raise SwitchError(f"does not tell its counters: {error.details()}") from None
        return [entity for response in responses for entity in response.entities]
