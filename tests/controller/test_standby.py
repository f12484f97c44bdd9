"""A backup at every switch: what it may not do while there is a primary, and how it becomes one."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy import P4Schema
from finsy.proto import p4r, p4r_grpc, rpc_status

from fanin.controller.connection import Connection
from fanin.controller.controller import Controller
from fanin.controller.errors import ControllerError, SupersededError
from fanin.controller.jobs.ledger import Ledger
from fanin.controller.standby import Standby
from fanin.controller.tree import Tree
from fanin.p4compiler import Compiled
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.controller.switches import SwitchProcess, another_primary, read_state, running

pytestmark = pytest.mark.slow

HOSTS = ["h1", "h2"]
PRIMARIES = itertools.count(501)  # election ids, each higher than those before
Started = tuple[Topology, dict[str, SwitchProcess]]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with running(leaf_spine(spines=1, leaves=2, hosts_per_leaf=1)) as found:
        yield found


@dataclass(frozen=True, slots=True)
class Bmv2:
    """A switch of that kind on this machine."""

    grpc_port: int
    name: str = "bmv2"
    device_id: int = 1


class Candidates:
    """Controllers of one network, each with a ledger of its own, as if two could have the one that there is."""

    def __init__(self, network: Topology, program: Compiled, folder: Path) -> None:
        self._program, self._folder = program, folder
        self.network = network

    def standby(self, election_id: int) -> Standby:
        schema = P4Schema(self._program.p4info, self._program.device_config())
        return Standby(self.network, schema, 1.0, election_id)

    def controller(
        self,
        in_force: tuple[Tree, ...] | None = None,
        sessions: Mapping[str, Connection] | None = None,
    ) -> Controller:
        """With a higher election id than the one before."""
        election_id = next(PRIMARIES)
        return Controller(
            self.network,
            self._program.p4info,
            self._program.device_config(),
            Ledger(self._folder / f"{election_id}.json"),
            in_force=in_force,
            election_id=election_id,
            sessions=sessions,
        )


def test_of_two_candidates_one_writes(started: Started, fanin_p4: Compiled, tmp_path: Path) -> None:
    candidates = Candidates(started[0], fanin_p4, tmp_path)

    async def run() -> None:
        async with candidates.controller() as first, candidates.standby(2) as standby:
            lease = await first.grant(HOSTS, slots=8)
            held = await read_state(candidates.network)
            sessions = await standby.take()
            for session in sessions.values():
                assert not session.has_bid
                assert session.taken_over_by == first._election_id
                session.election_id = 2
                with pytest.raises(SupersededError, match="Not primary"):
                    await session.write(p4r.Update.INSERT, [p4r.Entity()], ["nothing"])
            assert first.taken_over() == {}
            # The first one hangs, say: its sessions are there when the other one takes over.
            async with candidates.controller((lease.tree,), sessions) as second:
                assert second.taken_over() == {}
                findings = await second.tend(read_tables=False)
                assert (findings.trouble, list(findings.losses), findings.taken_over) == ("", [], {})
                assert await read_state(candidates.network) == held
                with pytest.raises(ControllerError, match="has another primary controller; end that one"):
                    await first.grant(HOSTS, 0xBEE1, 8, 8)
                assert await read_state(candidates.network) == held
                other = await second.grant(HOSTS, 0xBEE1, 8, 8)
                await other.withdraw()
                assert await read_state(candidates.network) == held

    asyncio.run(run())


def test_a_client_that_has_taken_a_switch_over_keeps_it(
    started: Started, fanin_p4: Compiled, tmp_path: Path
) -> None:
    network, processes = started
    candidates = Candidates(network, fanin_p4, tmp_path)

    async def run() -> None:
        async with candidates.standby(2) as standby:
            async with candidates.controller():
                pass
            async with (
                another_primary(candidates.network, "leaf1", 5000),
                candidates.controller((), await standby.take()) as second,
            ):
                findings = await second.tend(read_tables=False)
                assert findings.trouble == "leaf1 has another primary controller; end that one first"
                assert findings.taken_over == {"leaf1": 5000}
        processes["leaf1"].restart()  # which forgets that id

    asyncio.run(run())


class OfBMv2(p4r_grpc.P4RuntimeServicer):
    """Elects as BMv2's server does: whoever has the highest id of those that are there, without being asked."""

    def __init__(self) -> None:
        self._clients: dict[asyncio.Queue[p4r.StreamMessageResponse], int] = {}

    async def StreamChannel(self, requests: Any, _context: Any) -> AsyncIterator[Any]:
        own: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()

        async def hear() -> None:
            async for request in requests:
                before = self._primary()
                self._clients[own] = request.arbitration.election_id.low
                self._tell(*(self._clients if own in (before, self._primary()) else [own]))

        hearing = asyncio.create_task(hear())
        try:
            while True:
                telling = asyncio.create_task(own.get())
                await asyncio.wait([telling, hearing], return_when=asyncio.FIRST_COMPLETED)
                if not telling.done():
                    telling.cancel()
                    return
                yield telling.result()
        finally:
            hearing.cancel()
            was_primary = own is self._primary()
            self._clients.pop(own, None)
            if was_primary:
                self._tell(*self._clients)

    def _primary(self) -> object:
        return max(self._clients, key=self._clients.__getitem__, default=None)

    def _tell(self, *clients: asyncio.Queue[p4r.StreamMessageResponse]) -> None:
        for client in clients:
            code = 0 if client is self._primary() else grpc.StatusCode.ALREADY_EXISTS.value[0]
            update = p4r.MasterArbitrationUpdate(
                election_id=p4r.Uint128(low=max(self._clients.values())), status=rpc_status.Status(code=code)
            )
            client.put_nowait(p4r.StreamMessageResponse(arbitration=update))


def test_where_bmv2_promotes_the_backup_it_waits_until_it_is_asked(fanin_p4: Compiled) -> None:
    async def run() -> None:
        server = grpc.aio.server()
        p4r_grpc.add_P4RuntimeServicer_to_server(OfBMv2(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        schema = P4Schema(fanin_p4.p4info, fanin_p4.device_config())
        first, backup, third = (Connection(Bmv2(port), schema) for _ in range(3))
        first.election_id, backup.election_id, third.election_id = 501, 502, 503
        await first.open()
        await backup.stand_by(2)
        assert (first.taken_over_by, backup.taken_over_by) == (None, 501)
        await first.close()
        async with asyncio.timeout(30):
            while backup.taken_over_by is not None:
                await asyncio.sleep(0)
        assert not backup.has_bid
        await third.stand_by(3)
        # Whose primary is by chance the other backup, with a lower id than its own.
        await backup.open()
        assert (backup.has_bid, backup.taken_over_by) == (True, None)
        # And where the one before is there, and hangs.
        await third.open()
        async with asyncio.timeout(30):
            while backup.taken_over_by is None:
                await asyncio.sleep(0)
        assert (backup.taken_over_by, third.taken_over_by) == (503, None)
        await backup.close()
        await third.close()
        await server.stop(None)

    asyncio.run(run())


def test_a_switch_that_comes_back_has_the_backup_again_and_may_call_it_primary(
    started: Started, fanin_p4: Compiled, tmp_path: Path
) -> None:
    """As BMv2 does with the highest that is left."""
    network, processes = started
    candidates = Candidates(network, fanin_p4, tmp_path)

    async def run() -> None:
        async with candidates.standby(2) as standby:
            leaf = standby._connections["leaf1"]
            assert leaf.taken_over_by is None
            session = leaf._stream
            processes["leaf1"].restart()
            async with asyncio.timeout(60):
                while leaf._stream is session or leaf._arbitration is None:
                    await asyncio.sleep(0)
            assert leaf._arbitration.status.code == 0
            assert not leaf.has_bid
            async with candidates.controller((), await standby.take()) as controller:
                await controller.grant(HOSTS)
                assert controller.taken_over() == {}

    asyncio.run(run())


def test_where_a_switch_is_away_the_others_have_their_backup(
    started: Started, fanin_p4: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, processes = started
    candidates = Candidates(network, fanin_p4, tmp_path)
    monkeypatch.setattr("fanin.controller.connection._ANSWER_SECONDS", 0.5)
    processes["leaf2"].pause()

    async def run() -> None:
        async with candidates.standby(2) as standby:
            assert not standby._connections["leaf1"].lost
            sessions = await standby.take()
            monkeypatch.undo()
            processes["leaf2"].go_on()
            async with candidates.controller((), sessions) as controller:
                await controller.grant(HOSTS)

    asyncio.run(run())
