"""A role's configuration says what its primary may write, read and is told (specification, "Role Config")."""

import grpc
import pytest
from finsy.proto import p4r, stratum

INVALID, DENIED = "INVALID_ARGUMENT", "PERMISSION_DENIED"


@pytest.fixture
def join(connect):
    """Makes primaries of roles."""

    def join(role, **config):
        controller = connect()
        controller.open()
        assert controller.announce(1, role, config=stratum.P4RoleConfig(**config)).status.code == 0
        return controller

    return join


def test_everybody_of_the_role_is_told_its_config(connect, join, program):
    first = join("routing", shared_p4_ids=[program.id("routes")])
    backup = connect()
    backup.open()
    told = backup.announce(None, "routing")
    config = stratum.P4RoleConfig()
    assert told.role.config.Unpack(config)
    assert list(config.shared_p4_ids) == [program.id("routes")]
    changed = stratum.P4RoleConfig(can_push_pipeline=True)
    first.announce(2, "routing", config=changed)
    assert backup.receive().arbitration.role.config.Unpack(config)
    assert config == changed


def test_a_role_writes_the_objects_of_its_config(controller, join, program):
    role = join("routing", exclusive_p4_ids=[program.id("routes")], shared_p4_ids=[program.id("arrivals")])
    role.insert(program.route(1 << 8, 24))
    role.modify(p4r.Entity(counter_entry={"counter_id": program.id("arrivals"), "data": {"packet_count": 1}}))
    refused = role.refusal(role.insert, program.host(1), program.route(2 << 8, 24))
    assert refused.codes == [DENIED, "OK"]
    key = program.host(1).table_entry
    assert role.refusal(role.modify, p4r.Entity(direct_counter_entry={"table_entry": key})).codes == [DENIED]
    group = {"multicast_group_entry": {"multicast_group_id": 1}}
    replication = p4r.Entity(packet_replication_engine_entry=group)
    assert role.refusal(role.insert, replication).codes == [DENIED]
    controller.insert(program.host(1), program.route(3 << 8, 24), replication)


def test_an_atomic_batch_with_a_denied_update_is_not_done(controller, join, program):
    role = join("routing", shared_p4_ids=[program.id("routes")])
    batch = [("INSERT", program.route(1 << 8, 24)), ("INSERT", program.host(1))]
    refused = role.refusal(role.write, *batch, atomicity="ROLLBACK_ON_ERROR")
    assert refused.codes == ["ABORTED", DENIED]
    assert controller.read(program.entry("routes")) == []


def test_a_read_has_what_the_role_has(controller, join, program):
    controller.insert(program.host(1), program.route(1 << 8, 24))
    role = join("routing", shared_p4_ids=[program.id("routes")])
    assert role.read(p4r.Entity(table_entry={})) == [program.route(1 << 8, 24)]
    assert len(controller.read(p4r.Entity(table_entry={}))) > 2
    role.role = "nobody's"
    assert role.read(p4r.Entity(table_entry={})) == controller.read(p4r.Entity(table_entry={}))


def test_a_role_sets_pipelines_if_its_config_says_so(join, program):
    refused = join("reader").refusal
    reader = join("another reader")
    assert refused(reader.set_pipeline, program.config).code is grpc.StatusCode.PERMISSION_DENIED
    join("installer", can_push_pipeline=True).set_pipeline(program.config)


def packet(ingress_port, reason):
    metadata = [
        {"metadata_id": n, "value": bytes([value])} for n, value in enumerate((ingress_port, reason), 1)
    ]
    return p4r.PacketIn(payload=b"a packet", metadata=metadata)


def test_packets_come_to_roles_that_want_them(controller, join, device):
    every, some = (
        join("every", receives_packet_ins=True),
        join("some", receives_packet_ins=True, packet_in_filter={"metadata_id": 2, "value": b"\0\x05"}),
    )
    none = join("none")
    for reason in (4, 5):
        device.controllers.send(p4r.StreamMessageResponse(packet=packet(1, reason)))
    assert [every.receive().packet for _ in range(2)] == [packet(1, 4), packet(1, 5)]
    assert [controller.receive().packet for _ in range(2)] == [packet(1, 4), packet(1, 5)]
    assert some.receive().packet == packet(1, 5)
    none.announce(2, "none", config=stratum.P4RoleConfig())  # no packet has come before this answer


def test_notifications_come_to_roles_that_have_the_object(join, program, device):
    table, digest = program.id("hosts"), 7
    owner, other = join("owner", shared_p4_ids=[table, digest]), join("other")
    messages = [
        p4r.StreamMessageResponse(digest={"digest_id": digest}),
        p4r.StreamMessageResponse(idle_timeout_notification={"table_entry": [{"table_id": table}]}),
    ]
    for message in messages:
        device.controllers.send(message)
    assert [owner.receive() for _ in range(2)] == messages
    other.announce(2, "other", config=stratum.P4RoleConfig())


@pytest.mark.parametrize(
    ("role", "config", "why"),
    [
        ("", stratum.P4RoleConfig(), "full pipeline access"),
        ("new", p4r.Uint128(), "stratum.P4RoleConfig"),
        ("new", stratum.P4RoleConfig(shared_p4_ids=[5], exclusive_p4_ids=[5]), "0x5 both"),
        ("new", stratum.P4RoleConfig(shared_p4_ids=[8, 9]), "0x9 is exclusive"),
        ("new", stratum.P4RoleConfig(exclusive_p4_ids=[7]), "0x7 is exclusive"),
    ],
)
def test_a_wrong_config_ends_the_stream(connect, join, role, config, why):
    join("present", exclusive_p4_ids=[9], shared_p4_ids=[7, 8])
    controller = connect()
    controller.open()
    refused = controller.refusal(controller.announce, 1, role, config=config)
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert why in refused.message
