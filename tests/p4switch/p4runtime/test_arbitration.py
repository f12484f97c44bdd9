"""One of several controllers is the primary (specification, "Client Arbitration and Controller Replication")."""

import gc
import threading
from contextlib import suppress
from itertools import chain
from unittest.mock import Mock

import grpc
import pytest
from finsy.proto import p4r

from fanin.p4switch.p4runtime.arbitration import Arbitration, Client
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.p4switch.p4runtime.server import P4RuntimeService
from tests.p4switch.p4runtime.conftest import DEVICE_ID, TIMEOUT

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
        update = client.take().arbitration
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
    for election_id, role, code, why in (
        (4, "", grpc.StatusCode.PERMISSION_DENIED, "this request has 4, but the highest so far is 5"),
        (
            9,
            "",
            grpc.StatusCode.PERMISSION_DENIED,
            "no client with the election id of this request, 9, is connected",
        ),
        (5, "special", grpc.StatusCode.PERMISSION_DENIED, "this request has 5, but the highest so far is 9"),
        (5, "unheard of", grpc.StatusCode.NOT_FOUND, "no role 'unheard of'"),
    ):
        with pytest.raises(P4RuntimeError) as refused:
            arbitration.require_primary(p4r.WriteRequest(election_id=p4r.Uint128(low=election_id), role=role))
        assert refused.value.code is code
        assert why in refused.value.message


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
    "message", [{"packet": {"payload": bytes(1 << 20)}}, {"arbitration": {"role": {"name": "x" * (1 << 20)}}}]
)
def test_the_messages_of_a_stream_that_broke_are_not_kept_until_garbage_is_collected(address, message):
    """A switch collects garbage rarely, and a message may be long."""
    sent = p4r.StreamMessageRequest(**message).SerializeToString()
    gc.disable()
    try:
        with grpc.insecure_channel(address) as channel:
            never_ends = threading.Event()
            stream = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")(
                chain([sent], iter(never_ends.wait, True)), timeout=TIMEOUT
            )
            with suppress(grpc.RpcError):
                next(stream)
        never_ends.set()
        for thread in threading.enumerate():
            if thread.name.endswith("(_receive)"):
                thread.join()
        # Not isinstance(), which asks a weak proxy for the class of an object that may have gone.
        kept = [each for each in gc.get_objects() if type(each) is p4r.StreamMessageRequest]
        assert not [each for each in kept if each.ByteSize() >= len(sent)]
    finally:
        gc.enable()


@pytest.mark.parametrize("role", ["", "special"])
def test_an_election_id_is_free_again_as_soon_as_its_stream_is_closed(connect, role):
    controller = connect().become_primary(1, role)
    for _ in range(50):
        controller.close_stream()
        controller = connect().become_primary(1, role)


def test_an_election_id_is_free_again_although_its_closed_stream_was_never_read(connect):
    greedy = connect().become_primary(1, "x" * 60_000)
    for _ in range(100):  # the answers are more than gRPC buffers
        greedy.send(
            arbitration={"device_id": DEVICE_ID, "election_id": {"low": 1}, "role": {"name": greedy.role}}
        )
    greedy.close_stream()
    connect().become_primary(1, greedy.role)


def test_the_end_of_a_stream_may_arrive_after_the_next_claim_of_its_election_id(device):
    service = P4RuntimeService(device, DEVICE_ID)
    claim = p4r.StreamMessageRequest(arbitration={"device_id": DEVICE_ID, "election_id": {"low": 1}})
    claimed_again, over = threading.Event(), threading.Event()

    def first():
        yield claim
        claimed_again.wait()

    def second():
        claimed_again.set()
        yield claim
        over.wait()

    context = Mock(**{"peer.return_value": "ipv4:127.0.0.1:1"})
    one, other = (service.StreamChannel(requests(), context) for requests in (first, second))
    assert next(one).arbitration.status.code == OK
    assert next(other).arbitration.status.code == OK
    assert list(one) == []
    over.set()
    assert list(other) == []


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
def test_of_streams_of_backups_the_lowest_election_id_makes_room_for_a_controller(connect):
    controllers = {election_id: connect() for election_id in [9, 100, *range(10, 72)]}
    for election_id, controller in controllers.items():
        controller.open()
        controller.announce(election_id)
    for lowest in (9, 10):
        connect().become_primary(1000 + lowest)
        refused = controllers[lowest].refusal(
            lambda c: [c.receive() for _ in range(100)], controllers[lowest]
        )
        assert refused.code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "another controller needs one" in refused.message


@pytest.mark.slow
def test_a_stream_of_a_primary_makes_no_room(connect):
    primaries = [connect().become_primary(1, role) for role in ("", *(f"role {n}" for n in range(32)))]
    for election_id in range(100, 170):
        connect().become_primary(election_id, "role 0")
    for controller in (primaries[0], *primaries[2:]):
        assert controller.announce(2, controller.role).status.code == OK


def test_the_address_with_the_most_streams_makes_room(device):
    service = P4RuntimeService(device, DEVICE)
    one = Client("ipv4:10.0.0.1")
    service._admit(one, bool)
    announce(service._arbitration, one, 1)
    many = [Client("ipv4:10.0.0.2") for _ in range(66)]
    for election_id, client in enumerate(many, 2):
        service._admit(client, bool)
        announce(service._arbitration, client, election_id)
    assert [client.has_left for client in (one, *many)] == [False] + [True] * 3 + [False] * 63


@pytest.mark.few(0)
@pytest.mark.slow
def test_streams_that_are_never_read_keep_no_thread(connect):
    for _ in range(64 + 140):  # more than the server has threads
        greedy = connect()
        greedy.open(timeout=None)
        greedy.announce(None, "x" * 60_000)
        for _ in range(100):  # the answers are more than gRPC buffers
            greedy.send(
                arbitration=p4r.MasterArbitrationUpdate(device_id=DEVICE_ID, role={"name": greedy.role})
            )
    controller = connect().become_primary(9)
    assert controller.get_pipeline() == p4r.GetForwardingPipelineConfigResponse()


def test_roles_with_controllers_are_limited(arbitration):
    first = announce(arbitration, Client(), 5, role="role 0")
    for number in range(1, 32):
        announce(arbitration, Client(), 5, role=f"role {number}")
    with pytest.raises(P4RuntimeError, match="32 roles") as refused:
        announce(arbitration, Client(), 5, role="one more")
    assert refused.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    announce(arbitration, Client(), 6, role="role 0")
    arbitration.leave(first)
    announce(arbitration, Client(), 5)


def test_a_controller_that_leaves_too_many_notifications_unread_loses_its_stream(arbitration):
    backup, primary = announce(arbitration, Client(), 4), announce(arbitration, Client(), 5)
    for _ in range(10_000):
        announce(arbitration, primary, 5)
        heard(primary)
    assert 4_000 < backup.outbox.qsize() < 5_000
    while isinstance(last := backup.take(), p4r.StreamMessageResponse):
        pass
    assert last.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert backup.outbox.empty()
