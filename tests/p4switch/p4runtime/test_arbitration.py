"""Of several controllers one is the primary (specification, "Client Arbitration and Controller Replication")."""

import grpc
import pytest
from finsy.proto import p4r

from fanin.p4switch.p4runtime.arbitration import Arbitration, Client
from fanin.p4switch.p4runtime.errors import P4RuntimeError

OK, NOT_FOUND, ALREADY_EXISTS = 0, 5, 6
DEVICE = 7


@pytest.fixture
def arbitration():
    return Arbitration(DEVICE)


def announce(arbitration, client, election_id, role="", device_id=DEVICE):
    message = p4r.MasterArbitrationUpdate(device_id=device_id)
    if election_id is not None:
        message.election_id.high, message.election_id.low = divmod(election_id, 1 << 64)
    if role:
        message.role.name = role
    arbitration.update(client, message)
    return client


def heard(client):
    """(status, highest election id) of each notification that a client has not looked at yet."""
    notifications = []
    while not client.outbox.empty():
        update = client.outbox.get().arbitration
        assert update.device_id == DEVICE
        high_low = update.election_id
        notifications.append((update.status.code, high_low.high << 64 | high_low.low))
    return notifications


def test_the_first_with_an_election_id_is_the_primary(arbitration):
    client = announce(arbitration, Client(), 5)
    assert heard(client) == [(OK, 5)]
    assert list(arbitration.primaries()) == [client]


def test_without_an_election_id_nobody_becomes_primary(arbitration):
    client = announce(arbitration, Client(), None)
    assert heard(client) == [(NOT_FOUND, 0)]
    assert not arbitration.primaries()


def test_election_id_zero_is_one(arbitration):
    assert heard(announce(arbitration, Client(), 0)) == [(OK, 0)]


def test_a_lower_id_is_a_backup_and_only_it_is_told(arbitration):
    first = announce(arbitration, Client(), 5)
    heard(first)
    assert heard(announce(arbitration, Client(), 4)) == [(ALREADY_EXISTS, 5)]
    assert heard(first) == []


def test_a_higher_id_takes_over_and_everybody_is_told(arbitration):
    first, backup = (announce(arbitration, Client(), n) for n in (5, 4))
    heard(first), heard(backup)
    winner = announce(arbitration, Client(), 1 << 100)
    assert [heard(client) for client in (winner, first, backup)] == [
        [(OK, 1 << 100)],
        [(ALREADY_EXISTS, 1 << 100)],
        [(ALREADY_EXISTS, 1 << 100)],
    ]


def test_an_id_in_use_is_refused(arbitration):
    announce(arbitration, Client(), 5)
    with pytest.raises(P4RuntimeError, match="Election id 5 is already used") as refused:
        announce(arbitration, Client(), 5)
    assert refused.value.code is grpc.StatusCode.INVALID_ARGUMENT


def test_a_client_may_repeat_its_own_id(arbitration):
    client = announce(arbitration, Client(), 5)
    announce(arbitration, client, 5)
    assert heard(client) == [(OK, 5), (OK, 5)]


def test_when_the_primary_goes_there_is_none_until_someone_claims_its_id(arbitration):
    primary, backup = (announce(arbitration, Client(), n) for n in (5, 4))
    heard(backup)
    arbitration.leave(primary)
    assert heard(backup) == [(NOT_FOUND, 5)]
    announce(arbitration, backup, 4)
    assert heard(backup) == [(NOT_FOUND, 5)]
    announce(arbitration, backup, 5)
    assert heard(backup) == [(OK, 5)]


def test_when_a_backup_goes_nobody_is_told(arbitration):
    primary, backup = (announce(arbitration, Client(), n) for n in (5, 4))
    heard(primary)
    arbitration.leave(backup)
    assert heard(primary) == []


def test_a_primary_can_step_down(arbitration):
    primary, backup = (announce(arbitration, Client(), n) for n in (5, 4))
    heard(primary), heard(backup)
    announce(arbitration, primary, 3)
    assert heard(primary) == [(NOT_FOUND, 5)]
    assert heard(backup) == [(NOT_FOUND, 5)]
    assert not arbitration.primaries()


def test_roles_have_primaries_of_their_own(arbitration):
    plain = announce(arbitration, Client(), 5)
    special = announce(arbitration, Client(), 5, role="special")
    assert heard(special) == [(OK, 5)]
    assert set(arbitration.primaries()) == {plain, special}


def test_the_device_must_exist(arbitration):
    with pytest.raises(P4RuntimeError, match="no device 8") as refused:
        announce(arbitration, Client(), 5, device_id=8)
    assert refused.value.code is grpc.StatusCode.NOT_FOUND


def test_role_and_device_of_a_stream_are_fixed(arbitration):
    client = announce(arbitration, Client(), 5)
    for change in ({"role": "special"}, {"device_id": 8}):
        with pytest.raises(P4RuntimeError) as refused:
            announce(arbitration, client, 6, **change)
        assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_only_the_primary_s_id_of_the_role_may_write(arbitration):
    announce(arbitration, Client(), 5)
    announce(arbitration, Client(), 4)
    announce(arbitration, Client(), 9, role="special")
    arbitration.require_primary(p4r.WriteRequest(election_id=p4r.Uint128(low=5)))
    arbitration.require_primary(p4r.WriteRequest(election_id=p4r.Uint128(low=9), role="special"))
    for election_id, role, code in (
        (4, "", grpc.StatusCode.PERMISSION_DENIED),
        (9, "", grpc.StatusCode.PERMISSION_DENIED),
        (5, "special", grpc.StatusCode.PERMISSION_DENIED),
        (5, "unheard of", grpc.StatusCode.NOT_FOUND),
    ):
        with pytest.raises(P4RuntimeError) as refused:
            arbitration.require_primary(p4r.WriteRequest(election_id=p4r.Uint128(low=election_id), role=role))
        assert refused.value.code is code


def test_packets_for_a_controller_that_does_not_read_are_lost_and_arbitration_is_not(arbitration):
    client = announce(arbitration, Client(), 5)
    packet = p4r.StreamMessageResponse(packet=p4r.PacketIn())
    for _ in range(10_000):
        client.offer(packet)
    queued = client.outbox.qsize()
    assert 1_000 < queued < 10_000
    announce(arbitration, Client(), 6)
    assert client.outbox.qsize() == queued + 1


def test_roles_that_nobody_has_are_remembered_only_so_many(arbitration):
    for number in range(1000):
        arbitration.leave(announce(arbitration, Client(), 5, f"role {number}"))
    assert len(arbitration._roles) < 100
    assert heard(announce(arbitration, Client(), 4, "role 999")) == [(NOT_FOUND, 5)]  # it was the last
    assert heard(announce(arbitration, Client(), 4, "role 0")) == [(OK, 4)]


def test_a_role_that_is_refused_is_none(arbitration):
    for wrong in ({"device_id": 99}, {"role": "x" * 100_000}):
        with pytest.raises(P4RuntimeError) as refused:
            announce(arbitration, Client(), 5, **{"role": "new", **wrong})
        assert len(str(refused.value)) < 1000
    assert len(arbitration._roles) == 1


# The same over gRPC


def test_a_stream_that_ends_makes_place_for_another(connect):
    first, second = connect().become_primary(9), connect()
    second.open()
    assert second.announce(8).status.code == ALREADY_EXISTS
    first.close_stream()
    assert second.receive().arbitration.status.code == NOT_FOUND
    assert second.announce(9).status.code == OK


def test_a_connection_that_breaks_makes_place_for_another(connect):
    first, second = connect().become_primary(9), connect()
    second.open()
    second.announce(8)
    first.close()
    assert second.receive().arbitration.status.code == NOT_FOUND


@pytest.mark.parametrize(
    ("announcement", "code"),
    [
        ({"election_id": 1, "device_id": 99}, grpc.StatusCode.NOT_FOUND),
        ({"election_id": 9}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_wrong_announcement_ends_the_stream(connect, announcement, code):
    connect().become_primary(9)
    other = connect()
    other.open()
    assert other.refusal(other.announce, **announcement).code is code


@pytest.mark.usefixtures("controller")
def test_only_the_primary_writes(connect, program):
    backup = connect()
    backup.election_id = 77
    for request in (lambda: backup.insert(program.host(1)), lambda: backup.set_pipeline(program.config)):
        assert backup.refusal(request).code is grpc.StatusCode.PERMISSION_DENIED
    assert backup.read(program.entry("hosts")) == []


@pytest.mark.slow
def test_the_number_of_streams_is_limited(connect):
    streams = []
    for election_id in range(1, 66):
        client = connect()
        client.open()
        streams.append((client, election_id))
    refused = 0
    for client, election_id in streams:
        try:
            client.announce(election_id)
        except Exception as error:
            refused += error.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused == 1


def test_streams_that_say_nothing_make_room_the_oldest_first(connect):
    idle = [connect() for _ in range(70)]
    for client in idle:
        client.open()
    primary = connect().become_primary(9)
    assert idle[0].refusal(idle[0].receive).code is grpc.StatusCode.RESOURCE_EXHAUSTED
    primary.close_stream()


@pytest.mark.slow
def test_streams_of_controllers_make_no_room(connect):
    for election_id in range(1, 65):
        connect().become_primary(election_id)
    late = connect()
    late.open()
    assert late.refusal(late.receive).code is grpc.StatusCode.RESOURCE_EXHAUSTED
