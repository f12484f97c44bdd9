"""Table entries by P4Runtime: the processor time of the switch, compared with only reading the same messages."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from finsy.proto import p4r

from fanin.assurance.bench.switch.p4runtime import encoded
from fanin.assurance.bench.switch.tables import TABLE, Routes
from fanin.p4switch.p4runtime import proto
from fanin.p4switch.p4runtime.batches import attempt
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.roles import RoleAccess
from fanin.p4switch.serving import leave_start_uncollected

BATCH = 1000  # entries in a request


@dataclass(frozen=True, slots=True)
class InsertOutcome:
    """Processor time of inserting entries, from serialized requests to entries in the data plane.

    `baseline` is that of parsing the same requests, and of reading every key and argument in them. Both are in seconds.
    """

    routes: Routes
    seconds: float
    baseline: float

    @property
    def ratio(self) -> float:
        """Return how many times the baseline the inserts take."""
        return self.seconds / self.baseline


def insert_outcome(routes: Routes) -> InsertOutcome:
    """Insert the entries of a table in batches of 1,000, without gRPC and with nothing else in the process."""
    entities = list(encoded(routes.program, TABLE, routes.entries()))
    requests = [
        p4r.WriteRequest(
            updates=[
                p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities[at : at + BATCH]
            ]
        ).SerializeToString()
        for at in range(0, len(entities), BATCH)
    ]
    device = Device({}, None, drop_port=511)
    config = proto.p4r.ForwardingPipelineConfig(p4_device_config=routes.program.device_config())
    config.p4info.ParseFromString(routes.program.p4info.SerializeToString())
    pipeline = device.load(config)
    device.commit(pipeline)
    access = RoleAccess()

    def insert() -> None:
        for request in requests:
            for update in proto.p4r.WriteRequest.FromString(request).updates:
                error = attempt(pipeline.entities, update, access)
                assert error is None, error

    def read() -> None:
        for request in requests:
            for update in proto.p4r.WriteRequest.FromString(request).updates:
                entry = update.entity.table_entry
                for match in entry.match:
                    bytes(match.exact.value or match.lpm.value or match.ternary.value)
                for parameter in entry.action.action.params:
                    bytes(parameter.value)

    thresholds = gc.get_threshold()
    leave_start_uncollected()  # as in the switch's process
    try:
        return InsertOutcome(routes, _processor_seconds(insert), _processor_seconds(read))
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        device.stop()


def _processor_seconds(function: Callable[[], None]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began
