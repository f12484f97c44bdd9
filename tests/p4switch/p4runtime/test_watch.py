"""Members of a selector's groups are skipped while the port that they watch is down; so are replicas' ports."""

import json
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from finsy.proto import p4r

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Replica, TableError
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.entities.registry import Entities
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.testbed.patience import setting
from tests.p4switch.p4runtime.conftest import Program


class Switch:
    """The program's entities on an engine without ports, and what is said of the ports."""

    def __init__(self, program):
        self.program = program
        self.watched = WatchedPorts(frozenset({1, 2}))
        self.engine = Engine.load(program.device_config)
        self.entities = Entities(program.p4info, self.engine, self.watched)

    def write(self, kind, entity):
        self.entities.write(p4r.Update(type=kind, entity=entity))

    def down(self, *ports):
        self.watched.down = frozenset(ports)
        self.entities.follow_ports()

    def ways(self):
        """Where packets of four sources leave."""
        return [self.engine.process(7, bytes([0, 0, source, 1, 0, 0]))[0][0] for source in range(4)]

    def forward(self, port):
        return self.program.action("forward", bytes([port]))

    def members(self, *ports):
        for port in ports:
            member = {"action_profile_id": self.profile, "member_id": port, "action": self.forward(port)}
            self.write("INSERT", p4r.Entity(action_profile_member=member))

    @property
    def profile(self):
        return self.program.id("path_choice")

    def group(self, *members):
        message = {"action_profile_id": self.profile, "group_id": 1, "members": members}
        return p4r.Entity(action_profile_group=message)

    def path(self, **action):
        entity = self.program.entry("paths", self.program.exact(1))
        entity.table_entry.action.CopyFrom(p4r.TableAction(**action))
        return entity

    def replicas(self, *replicas):
        """A multicast group."""
        entry = {"multicast_group_id": 1, "replicas": replicas}
        return p4r.Entity(packet_replication_engine_entry={"multicast_group_entry": entry})

    def choices(self, *watched):
        """An action set that sends to ports, each watched."""
        choices = [
            {"action": self.forward(port), "weight": 1, "watch_port": bytes([port])} for port in watched
        ]
        return self.path(action_profile_action_set={"action_profile_actions": choices})


@pytest.fixture
def switch():
    compiled = compile_once(Path(__file__).parents[1] / "programs/entities.p4")
    return Switch(Program(compiled.p4info, json.dumps(compiled.json).encode()))


def watching(port, weight=1):
    return {"member_id": port, "weight": weight, "watch_port": bytes([port])}


def test_a_group(switch):
    switch.members(1, 2, 3)
    group = switch.group(watching(1), watching(2), {"member_id": 3, "weight": 2})
    switch.write("INSERT", group)
    switch.write("INSERT", switch.path(action_profile_group_id=1))
    assert switch.ways() == [1, 2, 3, 3]
    switch.down(1)
    assert switch.ways() == [2, 3, 3, 2]
    assert list(switch.entities.read(switch.group())) == [group]
    with pytest.raises(TableError, match="in use"):
        switch.write(
            "DELETE", p4r.Entity(action_profile_member={"action_profile_id": switch.profile, "member_id": 1})
        )
    switch.write("MODIFY", switch.group(watching(1), watching(2)))
    assert switch.ways() == [2] * 4
    switch.down(1, 2)
    assert switch.ways() == [0] * 4  # an empty group does nothing
    switch.down()
    assert switch.ways() == [1, 2, 1, 2]


def test_an_action_set(switch):
    switch.down(2)
    entry = switch.choices(1, 2)
    switch.write("INSERT", entry)
    assert switch.ways() == [1] * 4
    assert list(switch.entities.read(switch.path())) == [entry]
    switch.down(1)
    assert switch.ways() == [2] * 4
    assert list(switch.entities.read(switch.path())) == [entry]
    switch.write("MODIFY", switch.choices(1))
    assert switch.ways() == [0] * 4
    switch.write("DELETE", entry)
    switch.down()
    assert list(switch.entities.read(switch.path())) == []


def test_the_default_entry_of_a_table_with_a_profile_is_const(switch):
    """Specification, "Default Entry": it is a constant NoAction."""
    entry = switch.choices(1, 2)
    entry.table_entry.ClearField("match")
    entry.table_entry.is_default_action = True
    for action in (entry.table_entry.action, p4r.TableAction(action_profile_group_id=1), switch.forward(1)):
        table_action = p4r.TableAction(action=action) if isinstance(action, p4r.Action) else action
        entry.table_entry.action.CopyFrom(table_action)
        with pytest.raises(P4RuntimeError, match="const NoAction") as refused:
            switch.write("MODIFY", entry)
        assert refused.value.code is grpc.StatusCode.PERMISSION_DENIED
    switch.write("MODIFY", switch.program.entry("paths", is_default_action=True))  # without an action
    assert switch.ways() == [0] * 4


def test_the_older_number_of_a_watched_port(switch):
    switch.members(1, 3)
    switch.write(
        "INSERT", switch.group({"member_id": 1, "weight": 1, "watch": 1}, {"member_id": 3, "weight": 1})
    )
    switch.write("INSERT", switch.path(action_profile_group_id=1))
    switch.down(1)
    assert switch.ways() == [3] * 4


def test_a_watched_port_has_to_exist(switch):
    switch.members(3)
    for entity in switch.group(watching(3)), switch.choices(3):
        with pytest.raises(P4RuntimeError, match="watch port 3 is not a port") as refused:
            switch.write("INSERT", entity)
        assert refused.value.code.name == "INVALID_ARGUMENT"


def replica(port, *backups):
    """A replica whose instance is its port's number times ten, and so are its backups'."""
    backup_replicas = [{"port": bytes([backup]), "instance": 10 * backup} for backup in backups]
    return {"port": bytes([port]), "instance": 10 * port, "backup_replicas": backup_replicas}


def test_a_replica_leaves_by_the_first_of_its_ports_that_is_up(program):
    switch = Switch(program)
    group = switch.replicas(replica(1, 3, 2), replica(4))

    def copies():
        return [port for port, _ in switch.engine.process(7, bytes(14))]

    switch.write(
        "INSERT", program.entry("hosts", program.exact(0), action=program.action("multicast", b"\1"))
    )
    switch.down(1)
    switch.write("INSERT", group)
    assert copies() == [3, 4]
    switch.down()
    assert copies() == [1, 4]
    switch.down(1, 3, 4)
    assert copies() == [2, 4]  # 4 has no backup
    switch.down(1, 2, 3)
    assert copies() == [1, 4]  # all down: as if there were no backup
    assert list(switch.entities.read(switch.replicas())) == [group]
    switch.write("MODIFY", switch.replicas(replica(1, 2)))
    switch.down(1)
    assert copies() == [2]


def test_a_clone_may_have_backups_too(program):
    switch = Switch(program)
    entry = {"session_id": 1, "replicas": [replica(1, 2)]}
    switch.write("INSERT", p4r.Entity(packet_replication_engine_entry={"clone_session_entry": entry}))
    switch.down(1)
    assert switch.engine.sessions.all() == {1: (Replica(2, 20),)}


@pytest.mark.parametrize(
    "replicas",
    [
        [replica(1, 1)],
        [replica(1, 2), replica(2)],
        [replica(1, 2, 2)],
        [replica(1), {"port": b"\2", "backup_replicas": [{"port": b"\2\0"}]}],
        [{"port": b"\1", "backup_replicas": [{"port": b"\2", "instance": 0x10000}]}],
        [{"port": b"\1", "backup_replicas": [{"instance": 1}]}],
    ],
)
def test_wrong_backups_are_refused(program, replicas):
    switch = Switch(program)
    with pytest.raises(P4RuntimeError) as refused:
        switch.write("INSERT", switch.replicas(*replicas))
    assert refused.value.code.name == "INVALID_ARGUMENT"
    assert "multicast group 1" in refused.value.message


@pytest.mark.live
def test_ports_of_a_live_switch():
    session = Path(__file__).with_name("watch_session.py")
    command = ["unshare", "-rn", sys.executable, "-m", f"tests.p4switch.p4runtime.{session.stem}"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60 * setting(), check=False, cwd=session.parents[3]
    )
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [[1, 2, 1, 2], [2] * 4, [1, 2, 1, 2], [1] * 4]
