"""The device behind the P4Runtime service: its ports, its pipeline, and a saved pipeline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from fanin.native.toolchain import CompileLimitError, ToolchainError
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.links import Direction, LinkError, LinkProperties, changed, report
from fanin.p4switch.engine.live_ports import PortError
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.controllers import Controllers
from fanin.p4switch.p4runtime.entities.registry import Entities
from fanin.p4switch.p4runtime.errors import P4RuntimeError, invalid, unimplemented
from fanin.p4switch.p4runtime.notifier import Notifier
from fanin.p4switch.p4runtime.packetio import ControllerHeader
from fanin.p4switch.p4runtime.proto import p4r
from fanin.p4switch.ports.counters import PortCounters, port_counters
from fanin.p4switch.ports.status import PortMonitor

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """Loaded forwarding-pipeline config: its engine, and its entities by P4Info id."""

    config: p4r.ForwardingPipelineConfig
    engine: Engine
    entities: Entities
    packet_in: ControllerHeader
    packet_out: ControllerHeader


class Device:
    """Switch with ports and at most one forwarding pipeline. Another one may be saved, to be committed later.

    `controllers` receive the packets to the CPU port, on a thread of the engine, and digests and idle timeouts, on
    another thread. `follow` is called with each engine before it forwards. Callers hold `lock`, except for `load`,
    the methods on links, and `stop`.
    """

    def __init__(
        self,
        ports: Mapping[int, str],
        cpu_port: int | None,
        drop_port: int,
        links: Mapping[tuple[int, Direction], LinkProperties] | None = None,
        device_id: int = 0,
        priority_queues: int = 1,
        captures: Mapping[int, tuple[int, int]] | None = None,
        follow: Callable[[Engine], None] = lambda _: None,
    ) -> None:
        self.lock = threading.Lock()
        self.controllers = Controllers()
        self._notifier: Notifier | None = None
        self._monitor: PortMonitor | None = None
        self._watched = WatchedPorts(frozenset(ports))
        self._ports = dict(ports)
        self._cpu_port = cpu_port
        self._drop_port = drop_port
        self._links = dict(links or {})
        self._linking = threading.Lock()
        self._past = dict.fromkeys(ports, PortCounters())  # of the earlier pipelines
        self._device_id = device_id
        self._priority_queues = priority_queues
        self._captures = captures
        self._follow = follow
        self._running: tuple[Engine, Callable[[bytes], None]] | None = None
        self._committed: LoadedPipeline | None = None
        self._saved: LoadedPipeline | None = None

    @property
    def pipeline(self) -> LoadedPipeline | None:
        """Return the pipeline that reads and writes use: the last one saved or committed."""
        return self._saved or self._committed

    @property
    def engine(self) -> Engine | None:
        """Return the engine that forwards, or None."""
        return self._running[0] if self._running is not None else None

    def boot(self, device_config: bytes) -> None:
        """Forward with a BMv2 JSON only. Without P4Info no controller can write to it.

        Raises:
            ProgramError: As for `Engine.load`.
            ToolchainError: As for `Engine.load`.
            PortError: If a port cannot be opened.
        """
        self._run(self._engine(device_config), _discard)

    def prepare(self, device_config: bytes) -> None:
        """Compile a BMv2 JSON, so that `boot` takes it from the cache.

        Raises:
            ProgramError: As for `Engine.load`.
            ToolchainError: As for `Engine.load`.
        """
        self._engine(device_config)

    @property
    def interfaces(self) -> Mapping[int, str]:
        """Return the interface of each port."""
        return self._ports

    def load(self, config: p4r.ForwardingPipelineConfig) -> LoadedPipeline:
        """Load a config while the present one keeps forwarding.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT for an invalid config, RESOURCE_EXHAUSTED for one that is too large,
                INTERNAL without a C compiler.
        """
        if not config.HasField("p4info") or not config.p4_device_config:
            raise invalid("the config needs both a P4Info and a device config (BMv2 JSON)")
        try:
            engine = self._engine(_bmv2_json(config.p4_device_config))
        except ProgramError as error:
            raise invalid(f"the device config cannot be loaded: {error}") from error
        except (CompileLimitError, MemoryError) as error:
            raise P4RuntimeError(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)) from error
        except ToolchainError as error:
            raise P4RuntimeError(grpc.StatusCode.INTERNAL, str(error)) from error
        entities = Entities(config.p4info, engine, self._watched)
        types = engine.program.header_types.values()
        packet_in, packet_out = (
            ControllerHeader(config.p4info, name, types, entities.translations)
            for name in ("packet_in", "packet_out")
        )
        return LoadedPipeline(config, engine, entities, packet_in, packet_out)

    def save(self, pipeline: LoadedPipeline) -> None:
        """Save a pipeline to be committed later. From now on reads and writes use it, but packets do not."""
        self._saved = pipeline

    def commit_saved(self) -> None:
        """Forward with the saved pipeline.

        Raises:
            P4RuntimeError: NOT_FOUND if there is none, or as for `commit`.
        """
        if self._saved is None:
            raise P4RuntimeError(grpc.StatusCode.NOT_FOUND, "no config has been saved by VERIFY_AND_SAVE")
        self.commit(self._saved)

    def commit(self, pipeline: LoadedPipeline, keep_cells: Engine | None = None) -> None:
        """Forward with a pipeline instead of the present one.

        Args:
            pipeline: The pipeline.
            keep_cells: The engine whose registers and counters the pipeline takes over, or None.

        Raises:
            P4RuntimeError: FAILED_PRECONDITION if a port cannot be opened.
        """

        def deliver(packet: bytes) -> None:
            try:
                packet_in = pipeline.packet_in.unpack(packet)
            except P4RuntimeError as error:
                _log.warning("packet-in dropped: %s", error)
            else:
                self.controllers.send(p4r.StreamMessageResponse(packet=packet_in))

        try:
            self._run(pipeline.engine, deliver, keep_cells)
        except PortError as error:
            raise P4RuntimeError(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from error
        if self._notifier is not None:
            self._notifier.stop()
        self._notifier = Notifier(pipeline.engine, pipeline.entities, self.controllers)
        self._committed, self._saved = pipeline, None
        if self._ports:
            self._follow_ports(self.monitor.down)

    @property
    def monitor(self) -> PortMonitor:
        """Return the monitor of the ports' interfaces, started by the first call."""
        if self._monitor is None:
            self._monitor = PortMonitor(self._ports, self._ports_changed)
        return self._monitor

    def reconcile(self, pipeline: LoadedPipeline) -> None:
        """Commit a pipeline that takes over the present one's entries, groups, and cells of registers and counters.

        Cells start at zero if the register or counter is new, or has another size or width. If the config is the
        present one, only the cookie changes.

        Raises:
            P4RuntimeError: INVALID_ARGUMENT if one of them does not fit the new pipeline, or as for `commit`.
        """
        present = self._committed
        if present is not None and self._saved is None and _same_program(present.config, pipeline.config):
            self._committed = replace(present, config=pipeline.config)
            return
        if self.pipeline is None:
            self.commit(pipeline)
        else:
            pipeline.entities.take_over(self.pipeline.entities)
            self.commit(pipeline, self.pipeline.engine)

    def set_ports(self, ports: Mapping[int, str]) -> None:
        """Attach these interfaces instead of the present ones. gNMI keeps describing those of the start.

        Raises:
            PortError: If one cannot be opened. Then the present ones stay.
        """
        with self._linking:
            previous, self._ports = self._ports, dict(ports)
            self._past = dict.fromkeys(ports, PortCounters()) | self._total()
            if self._running is None:
                return
            engine, deliver = self._running
            links = {place: self._seeded(p) for place, p in self._links.items() if place[0] in ports}
            engine.stop()
            try:
                engine.start(ports, deliver, links=links, captures=self._captures_of(ports))
            except PortError:
                self._ports = previous
                links = {place: self._seeded(properties) for place, properties in self._links.items()}
                engine.start(previous, deliver, links=links, captures=self._captures)
                raise

    def _captures_of(self, ports: Mapping[int, str]) -> dict[int, tuple[int, int]]:
        return {port: files for port, files in (self._captures or {}).items() if port in ports}

    def packet_out(self, message: p4r.PacketOut) -> None:
        """Process a controller's packet as if it had arrived at the CPU port.

        Raises:
            P4RuntimeError: UNIMPLEMENTED without a CPU port, FAILED_PRECONDITION without a pipeline, INVALID_ARGUMENT
                for a packet that lacks fields of its header, or is too long.
        """
        if self._cpu_port is None:
            raise unimplemented("packet I/O needs a CPU port: start the switch with --cpu-port")
        if self._committed is None:
            raise no_pipeline()
        packet = self._committed.packet_out.pack(message)
        try:
            self._committed.engine.packet_out(packet, self._cpu_port)
        except PortError as error:
            raise invalid(f"packet-out: {error}") from None

    def set_link(self, port: int, direction: Direction, given: Mapping[str, Any]) -> None:
        """Change properties of an emulated link, for the present pipeline and later ones.

        Raises:
            LinkError: If there is no such port or property, or it is out of range.
        """
        if port not in self._ports:
            raise LinkError(f"the switch has no port {port}; there are {', '.join(map(str, self._ports))}")
        with self._linking:
            properties = changed(self._links.get((port, direction), LinkProperties()), given)
            self._links[port, direction] = properties
            if self._running is not None:
                self._running[0].set_link(port, direction, self._seeded(properties))

    def ports(self) -> list[dict[str, Any]]:
        """Return every port with its statistics and emulated links. Statistics begin when the pipeline is set."""
        with self._linking:
            engine = self._running[0] if self._running else None
            counts = engine.port_statistics() if engine else {}
            found = []
            for port, interface in self._ports.items():
                answer: dict[str, Any] = {"port": port, "interface": interface}
                if port in counts:
                    answer |= {name: getattr(counts[port], name) for name, *_ in counts[port]._fields_}
                for direction in Direction:
                    if properties := self._links.get((port, direction)):
                        statistics = engine.link_statistics(port, direction) if engine else None
                        answer[direction] = report(properties, statistics)
                found.append(answer)
        return found

    def counters(self) -> dict[int, PortCounters]:
        """Return the packets and bytes of each port since the switch was started."""
        with self._linking:
            return self._total()

    def stop(self) -> None:
        """Close the ports. The caller must not hold the lock, because threads that end may need it."""
        if self._monitor is not None:
            self._monitor.stop()
            self._monitor = None
        if self._notifier is not None:
            self._notifier.stop()
            self._notifier = None
        with self._linking:
            if self._running is not None:
                self._running[0].stop()
                self._running = None

    def _ports_changed(self, down: frozenset[int]) -> None:
        _log.info("ports down: %s", ", ".join(map(str, sorted(down))) or "none")
        with self.lock:
            self._follow_ports(down)

    def _follow_ports(self, down: frozenset[int]) -> None:
        """Let groups skip the members that watch the ports that are down."""
        self._watched.down = down
        for pipeline in (self._committed, self._saved):
            if pipeline is not None:
                pipeline.entities.follow_ports()

    def _engine(self, device_config: bytes) -> Engine:
        engine = Engine.load(device_config, cpu_port=self._cpu_port, drop_port=self._drop_port)
        engine.set_priority_queues(self._priority_queues)
        return engine

    def _seeded(self, properties: LinkProperties) -> LinkProperties:
        """Return properties with a seed that depends on the device, so that switches do not lose the same packets."""
        return replace(properties, seed=properties.seed | self._device_id % 2**11 << 53)

    def _total(self) -> dict[int, PortCounters]:
        now = port_counters(self._running[0]) if self._running else {}
        return {port: past + now.get(port, PortCounters()) for port, past in self._past.items()}

    def _run(
        self, engine: Engine, deliver: Callable[[bytes], None], keep_cells: Engine | None = None
    ) -> None:
        with self._linking:
            links = {place: self._seeded(properties) for place, properties in self._links.items()}
            previous = self._running
            if previous is not None:
                self._past = self._total()
                previous[0].stop()
            if keep_cells is not None:  # now that no packet changes them
                engine.keep_cells(keep_cells)
            self._follow(engine)
            try:
                engine.start(self._ports, deliver, links=links, captures=self._captures)
            except Exception:
                if previous is not None:
                    self._follow(previous[0])
                    previous[0].start(self._ports, previous[1], links=links, captures=self._captures)
                raise
            self._running = engine, deliver


def _discard(_packet: bytes) -> None:
    """Discard a packet to the CPU port, while no controller knows the program."""


def _bmv2_json(device_config: bytes) -> bytes:
    """Return the JSON in a device config: bare, or in field 3 of p4.tmp.P4DeviceConfig, as older scripts write it."""
    if device_config.lstrip().startswith(b"{"):
        return device_config
    try:
        fields = UnknownFieldSet(Empty.FromString(device_config))
    except DecodeError:
        return device_config
    return next((field.data for field in fields if field.field_number == 3), device_config)


def _same_program(a: p4r.ForwardingPipelineConfig, b: p4r.ForwardingPipelineConfig) -> bool:
    return a.p4_device_config == b.p4_device_config and a.p4info == b.p4info


def no_pipeline() -> P4RuntimeError:
    """Return the error for requests about entities without a pipeline, in BMv2's words because finsy looks for them."""
    return P4RuntimeError(
        grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device"
    )
