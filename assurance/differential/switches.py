"""The two switches of a comparison, neither of which needs network interfaces."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from finsy.proto import p4r

from fanin.assurance.differential.client import DEVICE_ID, Counts, Session, SwitchError, session
from fanin.assurance.differential.dataplane import exchange
from fanin.assurance.differential.packets import Packet
from fanin.controller.entry_files import Entries
from fanin.experiments.scenario.compilers import CompiledProgram
from fanin.experiments.scenario.tools import BMV2, SwitchKind
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from fanin.p4switch.trace.text import as_text
from fanin.p4switch.trace.tracer import traced
from fanin.testbed.runs import scratch

_P4RUNTIME, _DATAPLANE = 9559, 9560
_DROP_PORT = 511
_STOP_SECONDS = 1.0  # to wait for the end of a process whose connection broke


@dataclass(frozen=True, slots=True)
class SwitchRun:
    """The results of a run.

    Attributes:
        refused: Indices of refused entities.
        outputs: Outputs of each packet, sorted by port.
        counts: Counters.
        trace: Trace of the last packet, or "".
    """

    refused: Sequence[int]
    outputs: Sequence[Sequence[Packet]]
    counts: Counts
    trace: str = ""


def run(
    engine: SwitchKind,
    program: CompiledProgram,
    entries: Entries,
    packets: Sequence[Packet],
    *,
    with_trace: bool = False,
) -> SwitchRun:
    """Start a fresh switch, load the program and the entries, send the packets, and read the results.

    Args:
        engine: Which switch.
        program: The compiled program.
        entries: Entries to insert.
        packets: Packets to send.
        with_trace: Whether to trace the last packet.

    Raises:
        SwitchError: The switch cannot run this.
        ToolError: The switch is not installed.
        ValueError: An entry does not fit the program.
    """
    entities = entries.encode(program.p4info)
    on_switch = _on_bmv2 if engine == "bmv2" else _on_embedded
    return asyncio.run(on_switch(program, entities, packets, with_trace))


async def _insert(switch: Session, entities: Sequence[p4r.Entity]) -> list[int]:
    return [place for place, entity in enumerate(entities) if not await switch.insert(entity)]


async def _on_embedded(
    program: CompiledProgram, entities: Sequence[p4r.Entity], packets: Sequence[Packet], with_trace: bool
) -> SwitchRun:
    device = Device({}, None, _DROP_PORT)
    server, port = serve(P4RuntimeService(device, DEVICE_ID), "127.0.0.1:0")
    try:
        async with session(port, program) as switch:
            refused = await _insert(switch, entities)
            assert device.pipeline is not None
            engine = device.pipeline.engine
            outputs, trace = [], ""
            for now, (port, packet) in enumerate(packets):
                if with_trace and now == len(packets) - 1:
                    with traced(engine) as tracer:
                        outputs.append(sorted(engine.process(port, packet, now)))
                        trace = "\n".join(as_text(found, verbose=True) for found in tracer.packets())
                else:
                    outputs.append(sorted(engine.process(port, packet, now)))
            return SwitchRun(refused, outputs, await switch.counts(entities), trace)
    finally:
        server.stop(grace=0).wait()
        device.stop()


async def _on_bmv2(
    program: CompiledProgram, entities: Sequence[p4r.Entity], packets: Sequence[Packet], with_trace: bool
) -> SwitchRun:
    with (
        tempfile.TemporaryDirectory(prefix="bmv2-", dir=scratch()) as folder,
        _bmv2(Path(folder), with_trace),
    ):
        async with session(_P4RUNTIME, program) as switch:
            refused = await _insert(switch, entities)
            left = exchange(f"127.0.0.1:{_DATAPLANE}", DEVICE_ID, packets)
            outputs = [sorted(packets) for packets in left]
            counts = await switch.counts(entities)
        return SwitchRun(
            refused, outputs, counts, _last_packet(Path(folder, "log.txt")) if with_trace else ""
        )


@contextmanager
def _bmv2(folder: Path, with_trace: bool) -> Iterator[None]:
    """Run a simple_switch_grpc that also exchanges packets over gRPC."""
    log = ["--log-file", str(folder / "log"), "--log-level", "trace", "--log-flush"] if with_trace else []
    command = [
        *(*BMV2.find(), "--no-p4", "--device-id", str(DEVICE_ID), *log),
        *("--", "--grpc-server-addr", f"127.0.0.1:{_P4RUNTIME}"),
        *("--dp-grpc-server-addr", f"127.0.0.1:{_DATAPLANE}", "--drop-port", str(_DROP_PORT)),
    ]
    with Path(folder, "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield
    except SwitchError as error:
        with contextlib.suppress(subprocess.TimeoutExpired):
            if (status := process.wait(_STOP_SECONDS)) < 0:
                raise SwitchError(f"dies by {signal.Signals(-status).name} ({error})") from None
        raise
    finally:
        process.kill()
        process.wait()


def _last_packet(log: Path) -> str:
    """Return the lines of a BMv2 log from the beginning of its last packet."""
    lines = log.read_text(errors="replace").splitlines()
    starts = [number for number, line in enumerate(lines) if "Processing packet received on port" in line]
    return "\n".join(lines[starts[-1] :]) if starts else ""
