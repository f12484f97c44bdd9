"""The controller of a network: installs the program, grants leases, sets loss, reads what was counted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar

from finsy import P4Schema
from finsy.proto import p4i

from controller.connection import Connection
from controller.errors import ControllerError
from controller.network import Network
from controller.plan import Plan, plan_aggregation, plan_forwarding, plan_loss
from controller.telemetry import SwitchCounts, read_counts
from controller.tree import FIRST_UDP_PORT, SLOTS, Job, Tree, aggregation_tree

_T = TypeVar("_T")

_LEASES = range(1, 256)


@dataclass(frozen=True, slots=True)
class Lease:
    """A job's right to its slots, as the switches hold it from `grant` until `withdraw`."""

    tree: Tree
    _controller: "Controller"

    @property
    def id(self) -> int:
        """The number that the job's packets carry."""
        return self.tree.job.lease

    async def withdraw(self) -> None:
        """Removes all its entries; packets that still carry it are dropped as not admitted."""
        await self._controller.withdraw(self)

    async def renew(self) -> "Lease":
        """Withdraws it and grants the same job a new one, which finds all slots fresh."""
        await self.withdraw()
        job = self.tree.job
        return await self._controller.grant(job.hosts, udp_port=job.udp_port, base=job.base, slots=job.slots)


class Controller:
    """Controls all switches of `network` with one program.

    An asynchronous context manager: inside, each switch runs the program, routes, and has been read back.

    Args:
        p4info: the program's P4Info.
        device_config: what the switch loads: BMv2 JSON.
        patience: stretches the time in which a switch is to answer.

    Raises (as every method does):
        ControllerError: what each switch that fails says.
    """

    def __init__(
        self, network: Network, p4info: p4i.P4Info, device_config: bytes, patience: float = 1.0
    ) -> None:
        self._network = network
        self._patience = patience
        self._schema = P4Schema(p4info, device_config)
        self._connections: dict[str, Connection] = {}
        self._leases: list[Lease] = []
        self._next_lease = iter(_LEASES)
        self._loss: Plan = {}

    async def __aenter__(self) -> Self:
        self._connections = {
            switch.name: Connection(switch, self._schema, self._patience) for switch in self._network.switches
        }
        try:
            await self._on_all(Connection.open)
            await self._on_all(Connection.push_pipeline)
            await self._install(plan_forwarding(self._network))
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
        await self._on_all(Connection.close)
        self._connections = {}

    async def grant(
        self, hosts: Sequence[str], udp_port: int = FIRST_UDP_PORT, base: int = 0, slots: int = SLOTS
    ) -> Lease:
        """A lease for a job of `hosts`, once every switch of its tree is ready for their packets.

        Workers send from and to `udp_port`, in slots `base` to `base + slots - 1`.
        """
        number = next(self._next_lease, None)
        if number is None:
            # What an old lease has left in a slot would be taken for its new owner's.
            raise ControllerError(
                f"all {len(_LEASES)} leases have been granted; enter the controller again: it pushes the program anew"
            )
        tree = aggregation_tree(self._network, Job(number, tuple(hosts), udp_port, base, slots))
        for other in self._leases:
            _check_apart(tree, other.tree)
        await self._install(plan_aggregation(self._network, tree))
        lease = Lease(tree, self)
        self._leases.append(lease)
        return lease

    async def withdraw(self, lease: Lease) -> None:
        """See `Lease.withdraw`."""
        if lease not in self._leases:
            raise ControllerError(f"lease {lease.id} is not in force")
        self._leases.remove(lease)
        await self._remove(plan_aggregation(self._network, lease.tree))

    async def set_loss(self, probability: float, seed: int = 0) -> None:
        """From now on each link loses each packet with `probability`; 0: none."""
        plan = plan_loss(self._network, probability, seed) if probability else {}
        await self._remove(self._loss)
        self._loss = plan
        await self._install(plan)

    async def counts(self) -> Mapping[str, SwitchCounts]:
        """What each switch has counted since its program was pushed."""
        return await self._on_all(lambda connection: read_counts(connection, self._network))

    async def register(self, switch: str, name: str) -> list[int]:
        """All cells of a register, to look inside; not to be had from BMv2."""
        return await self._connections[switch].read_register(name)

    async def _install(self, plan: Plan) -> None:
        async def install(connection: Connection) -> None:
            await connection.insert(plan[connection.switch.name])
            await connection.verify(plan[connection.switch.name])

        await self._on_all(install, plan)

    async def _remove(self, plan: Plan) -> None:
        await self._on_all(lambda connection: connection.delete(plan[connection.switch.name]), plan)

    async def _on_all(
        self, do: Callable[[Connection], Awaitable[_T]], only: Mapping[str, object] | None = None
    ) -> dict[str, _T]:
        """Does it on all switches (or those in `only`) at a time; one error tells of all that fail."""
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


def _check_apart(tree: Tree, other: Tree) -> None:
    """ControllerError if the jobs share slots on a switch."""
    shared = {part.switch for part in tree.aggregators} & {part.switch for part in other.aggregators}
    a, b = tree.job, other.job
    if shared and a.base < b.base + b.slots and b.base < a.base + a.slots:
        raise ControllerError(
            f"slots {a.base} to {a.base + a.slots - 1} overlap those of lease {b.lease}, {b.base} to "
            f"{b.base + b.slots - 1}, on {', '.join(sorted(shared))}; choose another base"
        )
