"""The controller of a network: installs the program, grants leases, sets loss, and reads counters."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from finsy.proto import p4i

from fanin.controller.connection import ELECTION_ID, Connection, connections
from fanin.controller.errors import ControllerError, SupersededError, UnavailableError
from fanin.controller.jobs.ledger import GRANT, Identity, Ledger, UsedUpError
from fanin.controller.network import Network
from fanin.controller.plan import Plan, SwitchPlan
from fanin.controller.planner import OURS, Planner
from fanin.controller.schema import schema_of
from fanin.controller.telemetry import SwitchCounts, read_counts
from fanin.controller.tree import FIRST_UDP_PORT, SLOTS, Job, Tree

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)

_PAUSES = (0.1, 0.2, 0.4, 0.8)  # seconds before another attempt with a switch that does not answer


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease as the switches hold it, from `grant` until `withdraw`."""

    tree: Tree
    _controller: "Controller"

    @property
    def id(self) -> int:
        """Return the number that the job's packets carry."""
        return self.tree.job.lease

    async def withdraw(self) -> None:
        """Remove all entries of the lease; packets that still carry it are dropped as not admitted.

        After an error the lease keeps its slots and its id; the switches that did not answer lose the entries when they
        are back. It may then be called again.
        """
        await self._controller.withdraw(self)

    async def renew(self) -> "Grant":
        """Withdraw the lease and grant the same job a new one, for which all slots are fresh."""
        await self.withdraw()
        job = self.tree.job
        chunks = job.last_chunk - job.first_chunk + 1
        return await self._controller.grant(job.hosts, job.udp_port, job.base, job.slots, chunks)


@dataclass(frozen=True, slots=True)
class Loss:
    """The entries and groups that a switch had lost, and has again.

    Attributes:
        switch: The switch.
        lacked: How many entries and groups it lacked.
        intended: How many it should hold.
        emptied: Whether its registers were emptied, too, and with them the sums in progress.
    """

    switch: str
    lacked: int
    intended: int
    emptied: bool

    def __str__(self) -> str:
        registers = ", and what its registers held" if self.emptied else ""
        return f"{self.switch} had lost {self.lacked} of {self.intended} entries and groups{registers}"


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of tending all switches.

    Attributes:
        trouble: Why a switch is not as it should be; empty if all are.
        losses: See Controller.losses.
        taken_over: See Controller.taken_over.
    """

    trouble: str
    losses: Sequence[Loss]
    taken_over: Mapping[str, int]


class Controller:
    """The control of all switches of a network with one program.

    It is an asynchronous context manager: inside, each switch runs the program, routes, and has been read back. Only
    one task acts at a time, and it acts on all switches or, after an error or a cancellation, on none. A switch that
    was gone gets what it should hold before any other request.

    Every method raises ControllerError with a line for each switch that fails.

    Args:
        network: The network.
        p4info: The program's P4Info.
        device_config: What the switch loads: BMv2 JSON.
        ledger: The record of numbers that this network's packets have carried, kept as long as any of its workers may
            be alive.
        patience: Factor for the time in which a switch has to answer.
        planner: Decides what switches hold.
        in_force: None: the switches get the program and nothing else. Otherwise the leases that an earlier controller
            granted before it ended unexpectedly: the switches are not interrupted, and everything else that they hold
            is removed, since it may be half of a lease.
        election_id: The election id for becoming the switches' primary.
        sessions: Sessions with all switches, taken over from a standby (controller/standby.py), which may be backups.
            None: the controller opens its own.

    Raises:
        ControllerError: If a switch fails.
    """

    def __init__(
        self,
        network: Network,
        p4info: p4i.P4Info,
        device_config: bytes,
        ledger: Ledger,
        patience: float = 1.0,
        planner: Planner = OURS,
        in_force: Sequence[Tree] | None = None,
        election_id: int = ELECTION_ID,
        sessions: Mapping[str, Connection] | None = None,
    ) -> None:
        self._network = network
        self._usable = network  # without the links that are down
        self.planner = planner
        self._patience = patience
        self._schema = schema_of(p4info, device_config)
        self._election_id = election_id
        self._sessions = sessions
        self._ledger = ledger
        self._taken_from_another = in_force
        self._connections: dict[str, Connection] = {}
        self._leases: list[Grant] = []
        self._intent: dict[str | int, Plan] = {}  # what switches should hold, by purpose; leases by their id
        self._out_of_step: set[str] = set()  # switches that may hold anything else
        self._losses: list[Loss] = []
        self._alone = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._ledger.__enter__()
        self._connections = dict(self._sessions or connections(self._network, self._schema, self._patience))
        for connection in self._connections.values():
            connection.election_id = self._election_id
        try:
            forwarding = self.planner.plan_forwarding(self._network)
            if self._taken_from_another is None:
                await self._together(Connection.open)
                await self._together(Connection.push_pipeline)
                await self._install("forwarding", forwarding)
            else:
                self._take_over(forwarding, self._taken_from_another)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            await self._together(Connection.close)
        finally:
            self._connections, self._leases, self._intent = {}, [], {}
            self._ledger.__exit__(None, None, None)

    async def grant(
        self,
        hosts: Sequence[str],
        udp_port: int = FIRST_UDP_PORT,
        base: int = 0,
        slots: int = SLOTS,
        chunks: int = GRANT,
        *,
        checksums: bool = True,
        window: int | None = None,
        server: str | None = None,
    ) -> Grant:
        """Grant a lease, once every switch of its tree is ready for the job's packets.

        Args:
            hosts: The workers' hosts, by rank.
            udp_port: The UDP port that workers send from and to.
            base: The first slot.
            slots: Number of slots.
            chunks: Number of chunk numbers. They differ from those of any earlier job.
            checksums: Whether switches require and write UDP checksums. If not, they accept packets without one, and
                write none.
            window: Packets that a worker may have in flight; None: as many as there are slots.
            server: The host of the job's parameter server; None: it has none.
        """
        async with self._alone:
            # With any id: a job that cannot be placed has to be refused before it takes one.
            job = Job(
                1, tuple(hosts), udp_port, base, slots, checksums=checksums, window=window, server=server
            )
            tree = self.planner.aggregation_tree(self._usable, job)
            await self._make_room(tree)
            tree = replace(tree, job=replace(tree.job, **asdict(await self._take(chunks))))
            lease = Grant(tree, self)
            await self._install(lease.id, self.planner.plan_aggregation(self._network, tree))
            self._leases.append(lease)
            said = {"lease": lease.id, "hosts": tree.job.hosts, "slots": [base, base + slots - 1]}
            _logger.info("granted a lease, its root %s", tree.root.switch, extra=said)
            return lease

    async def withdraw(self, lease: Grant) -> None:
        """Withdraw a lease; see Grant.withdraw."""
        async with self._alone:
            if lease not in self._leases:
                raise ControllerError(f"lease {lease.id} is not in force")
            await self._withdraw(lease)

    async def set_loss(self, probability: float, seed: int = 0) -> None:
        """Let each link lose each packet with `probability` from now on; 0 stops the losses."""
        plan = self.planner.plan_loss(self._network, probability, seed) if probability else {}
        async with self._alone:
            await self._remove("loss", self._intent.get("loss", {}))
            await self._install("loss", plan)

    async def reroute(self, usable: Network) -> None:
        """Let packets and new leases use only the links of `usable`: the network without links that are down.

        Leases in force stay as they are. After an error, switches that did not answer are updated when they are back.
        """
        async with self._alone:
            self._usable = usable
            before = self._intent["forwarding"]
            after = self._intent["forwarding"] = self.planner.plan_forwarding(usable)
            nothing = SwitchPlan(())

            async def replace_routes(connection: Connection) -> None:
                name = connection.switch.name
                await connection.replace(before.get(name, nothing), after.get(name, nothing))

            try:
                await self._on_all(replace_routes, self._connections)
            except BaseException:
                self._out_of_step |= set(self._connections)
                raise

    async def reconcile(self, switches: Iterable[str] = ()) -> None:
        """Read the tables and groups of `switches` (all, if none are named), and make them what they should be.

        A switch that has lost its program, or runs another one, gets it again; entries that this controller has not
        written are deleted. Use it after a switch was restarted, or somebody else has changed its tables.
        """
        async with self._alone:
            names = set(switches) or set(self._connections)
            if unknown := names - set(self._connections):
                raise ControllerError(
                    f"no switch is called {', '.join(sorted(unknown))}; there are {', '.join(self._connections)}"
                )
            self._out_of_step |= names
            await self._on_all(_nothing, names)

    @property
    def in_force(self) -> tuple[Grant, ...]:
        """Return all leases."""
        return tuple(self._leases)

    async def tend(self, *, read_tables: bool) -> Findings:
        """Repair the switches if there is no session with one of them, or if the tables of all are to be read."""
        trouble = ""
        if read_tables or not all(connection.has_bid for connection in self._connections.values()):
            try:
                await self.repair()
            except ControllerError as error:
                trouble = str(error)
        return Findings(trouble, self.losses(), self.taken_over())

    async def repair(self) -> None:
        """Read the tables and groups of all switches, and restore what is missing: see `losses`.

        It can run at any time: entries that others have added stay, and switches that another controller has taken over
        are left alone.
        """

        async def restore(connection: Connection) -> None:
            await self._restore(connection, keep_foreign=True)

        async with self._alone:
            await self._on_all(restore, self._connections.keys() - self.taken_over().keys())

    def losses(self) -> list[Loss]:
        """Return what switches turned out to have lost since the last call of this method."""
        found, self._losses = self._losses, []
        return found

    def taken_over(self) -> Mapping[str, int]:
        """Return the switches whose primary is another client, with its election id; they refuse requests from here."""
        return {
            name: connection.taken_over_by
            for name, connection in self._connections.items()
            if connection.taken_over_by is not None and connection.has_bid
        }

    async def counts(self) -> Mapping[str, SwitchCounts]:
        """Return what each switch has counted since its program was pushed."""
        async with self._alone:
            return await self._on_all(
                lambda connection: read_counts(connection, self._network), self._connections
            )

    async def register(self, switch: str, name: str) -> list[int]:
        """Return all cells of a register, for inspection; not available from BMv2."""
        return await self._connections[switch].read_register(name)

    def _take_over(self, forwarding: Plan, in_force: Sequence[Tree]) -> None:
        """Take over from another controller: switches are brought into step at the first request."""
        self._intent["forwarding"] = forwarding
        for tree in in_force:
            self._intent[tree.job.lease] = self.planner.plan_aggregation(self._network, tree)
            self._leases.append(Grant(tree, self))
        self._out_of_step |= set(self._connections)

    async def _take(self, chunks: int) -> Identity:
        in_force = {lease.id for lease in self._leases}
        try:
            return self._ledger.take(chunks, in_force)
        except UsedUpError as error:
            if in_force:
                raise ControllerError(
                    f"{error}; they come again when no lease is in force: withdraw {sorted(in_force)}"
                ) from None
        # A cell that holds a chunk of the first jobs would be mistaken for one of the next jobs.
        try:
            await self._on_all(Connection.push_pipeline, self._connections)
        finally:
            self._out_of_step |= set(self._connections)
        await self._on_all(_nothing, self._connections)
        self._losses.clear()  # the only losses are what this has emptied
        self._ledger.start_again()
        return self._ledger.take(chunks)

    async def _make_room(self, tree: Tree) -> None:
        """Raise ControllerError if the job shares slots on a switch with a lease in force."""
        for lease in list(self._leases):
            if shared := _overlap(tree, lease.tree):
                if lease.id in self._intent:
                    raise ControllerError(shared)
                await self._withdraw(lease)  # an earlier attempt failed

    async def _withdraw(self, lease: Grant) -> None:
        await self._remove(lease.id, self.planner.plan_aggregation(self._network, lease.tree))
        self._leases.remove(lease)
        _logger.info("withdrew a lease", extra={"lease": lease.id, "hosts": lease.tree.job.hosts})

    async def _install(self, key: str | int, plan: Plan) -> None:
        """Install a plan on all its switches, or on none."""

        async def install(connection: Connection) -> None:
            await connection.insert(plan[connection.switch.name])
            await connection.verify(plan[connection.switch.name])

        try:
            await self._on_all(install, plan)
        except BaseException as error:
            # A switch that is gone does not matter now: it is brought into step when it is back.
            there = {name: part for name, part in plan.items() if not self._connections[name].lost}
            try:
                await self._delete(there)
            except ControllerError as left:
                note = f"what was installed may be left until the switch is back: {left}"
                if isinstance(error, ControllerError):
                    raise ControllerError(f"{error}\n{note}") from error
                error.add_note(note)
            raise
        self._intent[key] = plan

    async def _remove(self, key: str | int, plan: Plan) -> None:
        # Done first, so that a switch that comes back in the meantime does not get the plan again.
        self._intent.pop(key, None)
        await self._delete(plan)

    async def _delete(self, plan: Plan) -> None:
        """Delete from the switches what they hold of a plan."""
        try:
            await self._on_all(lambda connection: connection.remove(plan[connection.switch.name]), plan)
        except BaseException:
            self._out_of_step |= set(plan)
            raise

    async def _on_all(self, do: Callable[[Connection], Awaitable[_T]], only: Iterable[str]) -> dict[str, _T]:
        """Run `do` like _together(), but bring each switch into step before, and try again if its session ends."""

        async def attempt(connection: Connection) -> _T:
            for pause in _PAUSES:
                try:
                    await self._bring_into_step(connection)
                    return await do(connection)
                except SupersededError:
                    # The other controller may have gone, and may have left entries worth keeping.
                    await connection.open()
                    if not await connection.runs_program():
                        self._out_of_step.add(connection.switch.name)
                except UnavailableError as error:
                    self._out_of_step.add(connection.switch.name)
                    _logger.warning("%s", error, extra={"switch": connection.switch.name})
                    await asyncio.sleep(pause)
            await self._bring_into_step(connection)
            return await do(connection)

        return await self._together(attempt, only)

    async def _bring_into_step(self, connection: Connection) -> None:
        """Make the switch what it should be, if it may be anything else."""
        name = connection.switch.name
        if not connection.has_bid:
            self._out_of_step.add(name)
            await connection.open()
        if name in self._out_of_step:
            await self._restore(connection)
            self._out_of_step.remove(name)
            _logger.info("installed again what the switch should hold", extra={"switch": name})

    async def _restore(self, connection: Connection, *, keep_foreign: bool = False) -> None:
        name = connection.switch.name
        pushed = not await connection.runs_program()
        if pushed:
            await connection.push_pipeline()
        parts = [plan[name] for plan in self._intent.values() if name in plan]
        intended = SwitchPlan(
            tuple(entry for part in parts for entry in part.entries),
            tuple(group for part in parts for group in part.groups),
        )
        lacked = await connection.reconcile(intended, keep_foreign=keep_foreign)
        if pushed or lacked:
            # If nothing at all was left, somebody has pushed the same program.
            size = len(intended.items)
            self._losses.append(Loss(name, lacked, size, pushed or lacked == size))

    async def _together(
        self, do: Callable[[Connection], Awaitable[_T]], only: Iterable[str] | None = None
    ) -> dict[str, _T]:
        """Run `do` on all switches (or those in `only`) concurrently; a single error reports all failures."""
        names = list(self._connections if only is None else only)
        results = await asyncio.gather(*(do(self._connections[n]) for n in names), return_exceptions=True)
        errors = [result for result in results if isinstance(result, BaseException)]
        for error in errors:
            if not isinstance(error, ControllerError):
                raise error
        if errors:
            raise ControllerError("\n".join(map(str, errors)))
        return {
            name: result
            for name, result in zip(names, results, strict=True)
            if not isinstance(result, BaseException)
        }


async def _nothing(_connection: Connection) -> None:
    """Do nothing: used only to bring a switch into step."""


def _overlap(tree: Tree, other: Tree) -> str:
    """Describe the problem if the jobs share slots on a switch; return "" if they do not."""
    shared = {part.switch for part in tree.aggregators} & {part.switch for part in other.aggregators}
    a, b = tree.job, other.job
    if shared and a.base < b.base + b.slots and b.base < a.base + a.slots:
        return (
            f"slots {a.base} to {a.base + a.slots - 1} overlap those of lease {b.lease}, {b.base} to "
            f"{b.base + b.slots - 1}, on {', '.join(sorted(shared))}; choose another base"
        )
    return ""
