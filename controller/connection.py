"""A P4Runtime session with one switch."""

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, TypeVar

import grpc
from finsy import P4MulticastGroupEntry, P4Schema, P4TableAction, P4TableEntry, P4TableMatch
from finsy.p4client import P4RpcStatus
from finsy.proto import U128, p4r, p4r_grpc

from fanin.controller.errors import ControllerError, SupersededError, UnavailableError
from fanin.controller.network import Network, Server
from fanin.controller.plan import MulticastGroup, SwitchPlan, TableEntry

_T = TypeVar("_T")

# The highest that we use: observers have smaller ones, and a client that takes over from us has a larger one.
ELECTION_ID = 1000
_ANSWER_SECONDS = 10.0
_PIPELINE_SECONDS = 60.0  # the switch may compile the program first
_LEAVE_SECONDS = 1.0
_BATCH = 1000  # updates in a request: far below gRPC's 4 MiB

_CHANNEL_OPTIONS = [
    ("grpc.enable_http_proxy", 0),  # a proxy cannot reach this machine's loopback interface
    # Find a switch that is back soon: gRPC's own pauses grow to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", 1 << 26),  # BMv2 answers a read with a single message
]
_FORGOTTEN = {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.FAILED_PRECONDITION}


@dataclass(frozen=True, slots=True)
class Count:
    """Packets and the bytes of their Ethernet frames."""

    packets: int = 0
    bytes: int = 0

    def __sub__(self, earlier: "Count") -> "Count":
        return Count(self.packets - earlier.packets, self.bytes - earlier.bytes)


class Connection:
    """The primary controller's session with a switch, or a backup's.

    Every method raises ControllerError, naming the switch, when it refuses or does not answer: UnavailableError if the
    session is lost, SupersededError if another controller is primary. `open` begins another session.

    Args:
        switch: The switch.
        schema: Describes the switch's program.
        patience: Factor for the time in which it has to answer.

    Attributes:
        election_id: The election id with which `open` becomes primary.
        taken_over_by: The election id of another client that is the switch's primary now; None if there is none.
    """

    def __init__(self, switch: Server, schema: P4Schema, patience: float = 1.0) -> None:
        self.switch = switch
        self._patience = patience
        self._schema = schema
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{switch.grpc_port}", options=_CHANNEL_OPTIONS)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._stream: Any = None
        self._listener: asyncio.Task[None] | None = None
        self.election_id = ELECTION_ID
        self._backup = False
        self._arbitration: p4r.MasterArbitrationUpdate | None = None  # the latest since the last bid
        self._changed = asyncio.Event()
        self.taken_over_by: int | None = None

    @property
    def lost(self) -> bool:
        """Return whether there is no session, or the switch has ended it."""
        return self._stream is None or bool(self._stream.done())

    @property
    def has_bid(self) -> bool:
        """Return whether there is a session in which this controller has bid to be primary."""
        return not (self.lost or self._backup)

    async def open(self) -> None:
        """Become the switch's primary controller (P4Runtime specification, section 5), once the switch answers.

        If an earlier primary had a higher election id and has gone, this one takes the next higher id. A backup bids in
        its existing session.
        """
        if not self._backup or self.lost:
            await self._begin()
        self._backup = False
        answer = await self._bid(self.election_id)
        if answer.status.code == grpc.StatusCode.NOT_FOUND.value[0]:
            self.election_id = U128.decode(answer.election_id) + 1
            answer = await self._bid(self.election_id)
        # If this one is not primary, it continues to listen, and notices when the other has gone.
        if answer.status.code != 0:
            raise ControllerError(f"{self.switch.name} has another primary controller; end that one first")

    async def stand_by(self, election_id: int) -> None:
        """Open a session as a backup, with an election id lower than any primary's; writes in it are refused.

        A switch without another client calls the backup primary all the same, as BMv2 does when the primary has gone.
        """
        await self._begin()
        self._backup = True
        await self._bid(election_id)

    async def ended(self) -> None:
        """Wait until the switch ends the current session."""
        if self._listener is not None:
            await asyncio.wait([self._listener])

    async def _begin(self) -> None:
        await self._leave()
        self._stream = self._stub.StreamChannel(wait_for_ready=True)
        self._listener = asyncio.create_task(self._listen())

    async def _bid(self, election_id: int) -> p4r.MasterArbitrationUpdate:
        """Bid with this election id, and return the switch's answer."""
        self._arbitration = None
        election = U128.encode(election_id)
        update = p4r.MasterArbitrationUpdate(device_id=self.switch.device_id, election_id=election)
        await self._answer(self._stream.write(p4r.StreamMessageRequest(arbitration=update)))
        return await self._answer(self._outcome(election_id))

    async def _outcome(self, election_id: int) -> p4r.MasterArbitrationUpdate:
        assert self._listener is not None
        while not self._listener.done():
            # Answers with lower ids were sent before this bid.
            if self._arbitration is not None and U128.decode(self._arbitration.election_id) >= election_id:
                return self._arbitration
            self._changed.clear()
            await self._changed.wait()
        await self._stream.read()  # raises why
        raise UnavailableError(f"{self.switch.name} has ended the session")

    async def close(self) -> None:
        """End the session, so that another controller can be primary at once; what the switch holds stays."""
        try:
            await self._leave()
        finally:
            await self._channel.close()

    async def _listen(self) -> None:
        """Receive messages until the session ends, to notice whether another client has become primary."""
        try:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                while isinstance(message := await self._stream.read(), p4r.StreamMessageResponse):
                    if message.HasField("arbitration"):
                        self._note_arbitration(message.arbitration)
        finally:
            self._changed.set()

    def _note_arbitration(self, answer: p4r.MasterArbitrationUpdate) -> None:
        another = answer.status.code == grpc.StatusCode.ALREADY_EXISTS.value[0]
        self.taken_over_by = U128.decode(answer.election_id) if another else None
        self._arbitration = answer
        self._changed.set()

    async def _leave(self) -> None:
        if self._stream is None:
            return
        try:
            if not self._stream.done():
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError):
                    async with asyncio.timeout(_LEAVE_SECONDS):
                        await self._stream.done_writing()
                        await self.ended()
        finally:
            self._stream.cancel()
            if self._listener is not None:
                self._listener.cancel()
                await asyncio.wait([self._listener])
                self._listener = None

    async def push_pipeline(self) -> None:
        """Make the switch run the schema's program, with empty tables and zeroed state."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=self.switch.device_id,
            election_id=U128.encode(self.election_id),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self._schema.get_pipeline_config(),
        )
        await self._answer(self._stub.SetForwardingPipelineConfig(request), _PIPELINE_SECONDS)

    async def runs_program(self) -> bool:
        """Return whether the switch has been pushed the schema's program, by any client."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.switch.device_id,
            response_type=p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY,
        )

        async def compare() -> bool:
            try:
                config = (await self._stub.GetForwardingPipelineConfig(request)).config
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.FAILED_PRECONDITION:  # BMv2 without a program
                    return False
                raise
            return config.cookie.cookie == self._schema.p4cookie

        return await self._answer(compare())

    async def insert(self, plan: SwitchPlan) -> None:
        """Write everything, in order."""
        await self.write(p4r.Update.INSERT, [self._encode(item) for item in plan.items], plan.items)

    async def remove(self, plan: SwitchPlan) -> None:
        """Delete what the switch holds of the plan, in reverse order."""
        held = {_canonical(entity) for entity in await self._held()}
        items = [item for item in plan.items[::-1] if _canonical(self._encode(item)) in held]
        await self.write(p4r.Update.DELETE, [self._encode(item) for item in items], items)

    async def replace(self, old: SwitchPlan, new: SwitchPlan) -> None:
        """Delete what only `old` has, and write what only `new` has."""
        before = {_canonical(self._encode(item)): item for item in old.items}
        after = {_canonical(self._encode(item)): item for item in new.items}
        held = {_canonical(entity) for entity in await self._held()}
        gone = [item for key, item in reversed(before.items()) if key in held and key not in after]
        missing = [item for key, item in after.items() if key not in held]
        await self.write(p4r.Update.DELETE, [self._encode(item) for item in gone], gone)
        await self.write(p4r.Update.INSERT, [self._encode(item) for item in missing], missing)

    async def verify(self, plan: SwitchPlan) -> None:
        """Read everything back.

        Raises:
            ControllerError: If the switch lacks an item; the message names the first one.
        """
        held = {_canonical(entity) for entity in await self._held()}
        for item in plan.items:
            if _canonical(self._encode(item)) not in held:
                raise ControllerError(f"{self.switch.name} does not have what was installed: {item}")

    async def reconcile(self, plan: SwitchPlan, *, keep_foreign: bool = False) -> int:
        """Read all table entries and multicast groups, delete what the plan lacks and write what the switch lacks.

        Args:
            plan: What the switch should hold.
            keep_foreign: Whether entries that the plan lacks stay, unless they have the key of an entry of the plan.

        Returns:
            How many items the switch lacked.
        """
        held = {_canonical(entity): entity for entity in await self._held()}
        intended = {_canonical(self._encode(item)): item for item in plan.items}
        missing = {key: item for key, item in intended.items() if key not in held}
        places = {place for place, _ in missing}
        foreign = [
            entity
            for (place, content), entity in held.items()
            if (place, content) not in intended and (not keep_foreign or place in places)
        ]
        await self.write(p4r.Update.DELETE, foreign, [_shown(entity) for entity in foreign])
        items = list(missing.values())
        await self.write(p4r.Update.INSERT, [self._encode(item) for item in items], items)
        return len(missing)

    async def read_counters(self, cells: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], Count]:
        """Return the values of counters, each named by its P4 name and index."""
        names = {self._schema.counters[name].id: name for name, _ in cells}
        ids = {name: counter_id for counter_id, name in names.items()}
        entries = [p4r.CounterEntry(counter_id=ids[name], index=p4r.Index(index=i)) for name, i in cells]
        entities = await self.read([p4r.Entity(counter_entry=entry) for entry in entries])
        read = [entity.counter_entry for entity in entities]
        return {
            (names[entry.counter_id], entry.index.index): Count(
                entry.data.packet_count, entry.data.byte_count
            )
            for entry in read
        }

    async def read_register(self, name: str) -> list[int]:
        """Return all cells of a register, for inspection; BMv2's server reports that it cannot read registers."""
        register = self._schema.registers[name]
        entry = p4r.RegisterEntry(register_id=register.id)
        entities = await self.read([p4r.Entity(register_entry=entry)])
        cells = {e.register_entry.index.index: e.register_entry.data for e in entities}
        return [int(register.type_spec.decode_data(cells[index])) for index in sorted(cells)]  # type: ignore[arg-type]

    async def _held(self) -> list[p4r.Entity]:
        """Return everything that was ever written: entries before the groups that they may name."""
        everything = [p4r.Entity(table_entry=p4r.TableEntry()), self._encode(MulticastGroup(0, ()))]
        return [entity for entity in await self.read(everything) if not entity.table_entry.is_const]

    async def write(
        self, kind: p4r.Update.Type.ValueType, entities: Sequence[p4r.Entity], items: Sequence[object]
    ) -> None:
        """Insert or delete entities. To insert a default action is to change the one that is there.

        Args:
            kind: INSERT or DELETE.
            entities: The entities.
            items: What the entities are called in an error.
        """
        for start, request in zip(count(0, _BATCH), self.requests(kind, entities)):
            await self.send(request, items[start : start + _BATCH])

    def requests(
        self, kind: p4r.Update.Type.ValueType, entities: Iterable[p4r.Entity]
    ) -> Iterator[p4r.WriteRequest]:
        """Yield the requests of write(), each made when it is needed: a million entities take gigabytes."""
        left = iter(entities)
        while batch := list(islice(left, _BATCH)):
            inserts = kind == p4r.Update.INSERT
            updates = [
                p4r.Update(
                    type=p4r.Update.MODIFY if inserts and each.table_entry.is_default_action else kind,
                    entity=each,
                )
                for each in batch
            ]
            yield p4r.WriteRequest(
                device_id=self.switch.device_id,
                election_id=U128.encode(self.election_id),
                updates=updates,
            )

    async def send(self, request: p4r.WriteRequest, items: Sequence[object]) -> None:
        """Send one of the requests."""
        await _to_its_end(self._answer(self._stub.Write(request), items=items))

    async def read(self, entities: Sequence[p4r.Entity]) -> list[p4r.Entity]:
        """Return what the switch holds of these entities; a wildcard stands for all of its kind."""
        request = p4r.ReadRequest(device_id=self.switch.device_id, entities=entities)

        async def collect() -> list[p4r.Entity]:
            return [entity async for response in self._stub.Read(request) for entity in response.entities]

        return await self._answer(collect())

    async def _answer(
        self,
        call: Awaitable[_T],
        seconds: float | None = None,
        items: Sequence[object] = (),
    ) -> _T:
        """Return the answer of `call`. If a write is refused, the error names the `items` that caused it."""
        seconds = self._patience * (seconds or _ANSWER_SECONDS)
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            where = f"127.0.0.1:{self.switch.grpc_port}"
            raise ControllerError(
                f"{self.switch.name} has not answered on {where} for {seconds:g} s"
            ) from None
        except grpc.aio.AioRpcError as error:
            status = P4RpcStatus.from_rpc_error(error)
            problems = [f"{status.code.name} {status.message}"]
            if status.details:
                problems = [
                    f"{items[i]}: {detail.canonical_code.name} {detail.message}"
                    for i, detail in status.details.items()
                ]
            problem = "\n  ".join(problems)
            code = error.code()
            # A restarted switch knows neither its primary nor its program.
            if code == grpc.StatusCode.UNAVAILABLE or (self.lost and code in _FORGOTTEN):
                message = f"{self.switch.name} is not there, or has restarted: {problem}"
                raise UnavailableError(message) from None
            if code == grpc.StatusCode.PERMISSION_DENIED:
                raise SupersededError(
                    f"{self.switch.name} has another primary controller: {problem}"
                ) from None
            raise ControllerError(f"{self.switch.name} refuses: {problem}") from None

    def _encode(self, item: MulticastGroup | TableEntry) -> p4r.Entity:
        if isinstance(item, MulticastGroup):
            return P4MulticastGroupEntry(item.group, replicas=item.replicas).encode(self._schema)
        try:
            match, action = P4TableMatch(item.match), P4TableAction(item.action, **item.params)
            return P4TableEntry(item.table, match=match, action=action).encode(self._schema)
        except ValueError as error:
            raise ControllerError(
                f"the program of {self.switch.name} has no place for {item}: {error}"
            ) from None


def connections(network: Network, schema: P4Schema, patience: float) -> dict[str, Connection]:
    """Return a connection for each switch, by the switch's name."""
    return {switch.name: Connection(switch, schema, patience) for switch in network.switches}


def _shown(entity: p4r.Entity) -> str:
    return "foreign " + " ".join(str(entity).split())


async def _to_its_end(write: Coroutine[Any, Any, _T]) -> _T:
    """Await a write to its end, even if cancelled: only after its answer does a read show what it has done."""
    task = asyncio.ensure_future(write)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.cancelled() or task.exception()  # the caller that cancels reads what the switch holds instead
        raise


def _canonical(entity: p4r.Entity) -> tuple[object, object]:
    """Return an entity's key and its content, in a form that is equal for equal entities.

    It does not depend on how a server orders fields and pads values.
    """
    if entity.HasField("packet_replication_engine_entry"):
        group = entity.packet_replication_engine_entry.multicast_group_entry
        ports = [(r.egress_port or int.from_bytes(r.port), r.instance) for r in group.replicas]
        return group.multicast_group_id, frozenset(ports)
    entry = entity.table_entry
    match = []
    for field in entry.match:
        kind = field.WhichOneof("field_match_type")
        length = field.lpm.prefix_len if kind == "lpm" else None
        match.append((field.field_id, kind, getattr(field, kind or "exact").value.lstrip(b"\0"), length))
    params = [(param.param_id, param.value.lstrip(b"\0")) for param in entry.action.action.params]
    return (entry.table_id, frozenset(match)), (entry.action.action.action_id, frozenset(params))
