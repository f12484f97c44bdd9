"""Action profiles, meters, value sets, clone sessions, digests and idle timeouts over P4Runtime, as specified."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r

from fanin.p4compiler import compile_once
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import Digest
from fanin.p4switch.p4runtime.codec.watch import WatchedPorts
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.entities.digests import Digests
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.p4switch.p4runtime.objects import PipelineObjects
from tests.p4switch.p4runtime.conftest import Program

INVALID, NOT_FOUND, PRECONDITION = "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION"
MS = 1_000_000


TESTS = Path(__file__).parents[2]


def compiled(path):
    made = compile_once(path)
    return Program(made.p4info, json.dumps(made.json).encode())


@pytest.fixture(scope="session")
def entities():
    return compiled(TESTS / "programs/entities.p4")


@pytest.fixture
def primary(connect, entities):
    controller = connect().become_primary()
    controller.set_pipeline(entities.config)
    return controller


def member(program, number, port, profile="path_choice", action="forward"):
    message = {
        "action_profile_id": program.id(profile),
        "member_id": number,
        "action": program.action(action, bytes([port])),
    }
    return p4r.Entity(action_profile_member=message)


def group(program, number, *members, **fields):
    message = p4r.ActionProfileGroup(action_profile_id=program.id("path_choice"), group_id=number, **fields)
    for member_id, weight in members:
        message.members.add(member_id=member_id, weight=weight)
    return p4r.Entity(action_profile_group=message)


def path(program, **action):
    entity = program.entry("paths", program.exact(1))
    entity.table_entry.action.CopyFrom(p4r.TableAction(**action))
    return entity


def marked(program, **action):
    """An entry of the table whose profile has no selector."""
    entity = program.entry("marks", program.exact(1))
    entity.table_entry.action.CopyFrom(p4r.TableAction(**action))
    return entity


def ports(device):
    """Where packets of eight sources leave."""
    engine = device.pipeline.engine
    return [engine.process(7, bytes([0, 0, source, 1, 0, 0]))[0][0] for source in range(8)]


def test_members_and_groups(primary, entities, device):
    primary.insert(*(member(entities, n, n) for n in (10, 20)), group(entities, 1, (10, 1), (20, 3)))
    primary.insert(path(entities, action_profile_group_id=1))
    assert ports(device) == [10, 20, 20, 20] * 2
    assert primary.read(group(entities, 0)) == [group(entities, 1, (10, 1), (20, 3))]
    assert primary.read(p4r.Entity(action_profile_member={})) == [member(entities, n, n) for n in (10, 20)]
    assert primary.read(path(entities)) == [path(entities, action_profile_group_id=1)]
    primary.modify(member(entities, 20, 21))
    assert ports(device) == [10, 21, 21, 21] * 2
    primary.modify(path(entities, action_profile_member_id=10))
    assert ports(device) == [10] * 8
    assert primary.refusal(primary.delete, member(entities, 10, 10)).codes == [PRECONDITION]
    primary.delete(path(entities), group(entities, 1), member(entities, 10, 10))
    assert primary.read(group(entities, 0)) == []


def test_one_shot(primary, entities, device):
    choices = [{"action": entities.action("forward", bytes([port])), "weight": port} for port in (1, 3)]
    entry = path(entities, action_profile_action_set={"action_profile_actions": choices})
    primary.insert(entry)
    assert ports(device) == [1, 3, 3, 3] * 2
    assert primary.read(path(entities)) == [entry]


def test_action_sets_and_members_exclude_each_other(primary, entities):
    choices = [{"action": entities.action("forward", bytes([1])), "weight": 1}]
    entry = path(entities, action_profile_action_set={"action_profile_actions": choices})
    primary.insert(entry)
    assert primary.refusal(primary.insert, member(entities, 1, 1)).codes == [INVALID]
    primary.delete(entry)
    primary.insert(member(entities, 1, 1))
    assert primary.refusal(primary.insert, entry).codes == [INVALID]


@pytest.fixture
def sized(connect, entities):
    """A pipeline whose selector says how its groups are measured."""

    def sized(**semantics):
        config = entities.config
        (profile,) = (p for p in config.p4info.action_profiles if p.with_selector)
        profile.max_group_size = 3
        profile.MergeFrom(p4i.ActionProfile(**semantics))
        controller = connect().become_primary()
        controller.set_pipeline(config)
        controller.insert(*(member(entities, n, n) for n in (1, 2, 3, 4)))
        return controller

    return sized


def test_a_group_is_measured_by_its_weights(sized, entities):
    controller = sized()
    for wrong in (
        group(entities, 1, (1, 1)),  # a max_size is needed where the profile has a limit
        group(entities, 1, (1, 1), max_size=4),
        group(entities, 1, (1, 1), (2, 2), max_size=2),
        group(entities, 1, (1, 0), max_size=3),
    ):
        assert controller.refusal(controller.insert, wrong).codes == [INVALID]
    controller.insert(group(entities, 1, (1, 1), (2, 2), max_size=3))
    assert controller.refusal(controller.modify, group(entities, 1, (1, 1), max_size=2)).codes == [INVALID]
    controller.modify(group(entities, 1, (1, 3), max_size=3))


def test_a_group_is_measured_by_its_members(sized, entities):
    controller = sized(sum_of_members={"max_member_weight": 50})
    controller.insert(group(entities, 1, (1, 50), (2, 50), (3, 1), max_size=3))
    for wrong in (
        group(entities, 2, (1, 51), max_size=3),
        group(entities, 2, (1, 1), (2, 1), (3, 1), (4, 1), max_size=3),
    ):
        assert controller.refusal(controller.insert, wrong).codes == [INVALID]


def test_an_action_set_is_measured_as_a_group(primary, entities):
    config = entities.config
    (profile,) = (p for p in config.p4info.action_profiles if p.with_selector)
    profile.max_group_size = 3
    primary.set_pipeline(config)

    def choosing(*weights):
        action = entities.action("forward", bytes([1]))
        choices = [{"action": action, "weight": weight} for weight in weights]
        return path(entities, action_profile_action_set={"action_profile_actions": choices})

    for wrong in ((), (0, 1), (2, 2)):
        assert primary.refusal(primary.insert, choosing(*wrong)).codes == [INVALID]
    primary.insert(choosing(1, 2))


def test_a_group_without_weights(sized, entities, device):
    """Every member weighs the same."""
    controller = sized(weights_disallowed=True)
    assert controller.refusal(controller.insert, group(entities, 1, (1, 1), max_size=3)).codes == [INVALID]
    without = group(entities, 1, (1, 0), (2, 0), max_size=3)
    controller.insert(without, path(entities, action_profile_group_id=1))
    assert controller.read(group(entities, 0)) == [without]
    assert ports(device) == [1, 2] * 4


def test_an_action_set_without_weights(primary, entities, device):
    config = entities.config
    (profile,) = (p for p in config.p4info.action_profiles if p.with_selector)
    profile.weights_disallowed = True
    primary.set_pipeline(config)
    choices = [{"action": entities.action("forward", bytes([port]))} for port in (4, 5)]
    entry = path(entities, action_profile_action_set={"action_profile_actions": choices})
    primary.insert(entry)
    assert ports(device) == [4, 5] * 4
    assert primary.read(path(entities)) == [entry]


@pytest.mark.parametrize("mode", ["DEFAULT_MODE_DETERMINED_BY_ACTION_SELECTOR", "HASH", "RANDOM"])
def test_an_action_set_says_what_chooses(primary, entities, device, mode):
    choices = [{"action": entities.action("forward", bytes([port])), "weight": 1} for port in (4, 5)]
    fields = {"action_profile_actions": choices, "action_selection_mode": mode}
    entry = path(entities, action_profile_action_set=fields)
    primary.insert(entry)
    chosen = [ports(device) for _ in range(8)]
    assert ({tuple(found) for found in chosen} == {(4, 5) * 4}) == (mode != "RANDOM")
    assert {port for found in chosen for port in found} == {4, 5}
    assert primary.read(path(entities)) == [entry]


def test_an_action_set_says_how_it_is_measured(primary, entities):
    config = entities.config
    (profile,) = (p for p in config.p4info.action_profiles if p.with_selector)
    profile.max_group_size = 3
    primary.set_pipeline(config)
    choices = [{"action": entities.action("forward", bytes([port])), "weight": 2} for port in (4, 5)]

    def measured(semantics):
        fields = {"action_profile_actions": choices, "size_semantics": semantics}
        return path(entities, action_profile_action_set=fields)

    assert primary.refusal(primary.insert, measured("SUM_OF_WEIGHTS")).codes == [INVALID]
    primary.insert(measured("SUM_OF_MEMBERS"))
    assert primary.read(path(entities)) == [measured("SUM_OF_MEMBERS")]


@pytest.mark.parametrize("field", ["action_selection_mode", "size_semantics"])
def test_what_an_action_set_cannot_say(primary, entities, field):
    choices = [{"action": entities.action("forward", b"\4"), "weight": 1}]
    wrong = path(entities, action_profile_action_set={"action_profile_actions": choices, field: 9})
    assert primary.refusal(primary.insert, wrong).codes == [INVALID]


def test_a_weight_that_is_too_much_to_hold(primary, entities):
    primary.insert(member(entities, 1, 1))
    refused = primary.refusal(primary.insert, group(entities, 1, (1, 65537)))
    assert refused.codes == ["RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda p: group(p, 1, (9, 1)), NOT_FOUND),
        (lambda p: group(p, 0), INVALID),
        (lambda p: member(p, 0, 1), INVALID),
        (lambda p: member(p, 1, 1, profile="mark_choice"), INVALID),
        (lambda p: path(p, action_profile_group_id=1), NOT_FOUND),
        (lambda p: path(p, action_profile_member_id=1), NOT_FOUND),
        (lambda p: path(p, action=p.action("forward", bytes([1]))), INVALID),
        (lambda p: p.entry("rates", p.exact(1)), INVALID),
        (lambda p: marked(p, action_profile_group_id=1), INVALID),
        (
            lambda p: marked(
                p,
                action_profile_action_set={
                    "action_profile_actions": [{"action": p.action("mark", b"\1"), "weight": 1}]
                },
            ),
            INVALID,
        ),
    ],
)
def test_what_a_profile_refuses(primary, entities, make, code):
    assert primary.refusal(primary.insert, make(entities)).codes == [code]


def test_direct_meters(primary, entities):
    config = p4r.MeterConfig(cir=1, cburst=2, pir=3, pburst=4)
    entry = entities.entry("rates", entities.exact(5), action=entities.action("metered"))
    query = entities.entry("rates", meter_config={})
    metered = p4r.Entity(table_entry=entry.table_entry)
    metered.table_entry.meter_config.CopyFrom(config)
    primary.insert(metered)
    assert primary.read(query) == [metered]
    assert primary.read(entities.entry("rates")) == [entry]
    key = {"table_id": entities.id("rates"), "match": [entities.exact(5)]}
    direct = p4r.Entity(direct_meter_entry={"table_entry": key, "config": config})
    assert primary.read(p4r.Entity(direct_meter_entry={"table_entry": key})) == [direct]
    primary.modify(entry)  # without a config the meter is reset
    assert primary.read(query) == [entry]
    primary.modify(direct)
    assert primary.read(query) == [metered]
    backwards = p4r.Entity(direct_meter_entry={"table_entry": key, "config": {"cir": 2, "pir": 1}})
    assert primary.refusal(primary.modify, backwards).codes == [INVALID]


@pytest.mark.parametrize(
    ("kind", "config", "code"),
    [
        ("TWO_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}, None),
        ("TWO_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4, "eburst": 1}, INVALID),
        ("SINGLE_RATE_TWO_COLOR", {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2}, None),
        ("SINGLE_RATE_TWO_COLOR", {"cir": 1, "cburst": 2, "pir": 3, "pburst": 2}, INVALID),
        ("SINGLE_RATE_TWO_COLOR", {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2, "eburst": 1}, INVALID),
        ("SINGLE_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2}, None),
        ("SINGLE_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2, "eburst": 1}, None),
        ("SINGLE_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 3, "pburst": 2, "eburst": 1}, INVALID),
        ("SINGLE_RATE_THREE_COLOR", {"cir": 1, "cburst": 2, "pir": 1, "pburst": 2, "eburst": -1}, INVALID),
    ],
)
def test_a_meter_takes_the_rates_of_its_type(primary, entities, kind, config, code):
    pipeline = entities.config
    pipeline.p4info.direct_meters[0].spec.type = p4i.MeterSpec.Type.Value(kind)
    primary.set_pipeline(pipeline)
    entry = entities.entry("rates", entities.exact(5), action=entities.action("metered"), meter_config=config)
    if code is None:
        primary.insert(entry)
    else:
        assert primary.refusal(primary.insert, entry).codes == [code]


def test_value_sets(primary, entities, device):
    def types(*values):
        members = [{"match": [entities.exact(value)]} for value in values]
        return p4r.Entity(value_set_entry={"value_set_id": entities.id("types"), "members": members})

    primary.modify(types(0x800, 0x86DD))
    assert primary.read(types()) == [types(0x800, 0x86DD)]
    assert len(device.pipeline.engine.value_set("P.types").members) == 2
    assert primary.refusal(primary.modify, types(1, 2, 3, 4, 5)).codes == ["RESOURCE_EXHAUSTED"]
    assert primary.refusal(primary.modify, types(1, 1)).codes == ["ALREADY_EXISTS"]
    assert primary.refusal(primary.insert, types(1)).codes == [INVALID]
    assert primary.read(types()) == [types(0x800, 0x86DD)]
    primary.modify(types())
    assert primary.read(types()) == [types()]


def session(number, *replicas, **fields):
    message = {"session_id": number, "replicas": [{"egress_port": p, "instance": i} for p, i in replicas]}
    return p4r.Entity(packet_replication_engine_entry={"clone_session_entry": {**message, **fields}})


def test_clone_sessions(primary, device):
    primary.insert(session(5, (1, 1), (2, 1)))
    primary.modify(session(5, (3, 1)))
    assert primary.read(session(0)) == primary.read(session(5)) == [session(5, (3, 1))]
    assert [r.port for r in device.pipeline.engine.sessions.all()[5]] == [3]
    assert primary.refusal(primary.insert, session(5)).codes == ["ALREADY_EXISTS"]
    assert primary.refusal(primary.insert, session(1 << 15)).codes == [INVALID]
    assert primary.refusal(primary.insert, session(6, packet_length_bytes=-1)).codes == [INVALID]
    primary.delete(session(5))
    assert primary.read(session(0)) == []
    assert primary.refusal(primary.read, session(5)).codes == [NOT_FOUND]


@pytest.mark.parametrize("what", [3, 5])  # cloned at ingress, at egress
def test_clones_are_cut_to_the_length_of_their_session(primary, device, what):
    passes = compiled(TESTS / "stf/passes.p4")
    primary.set_pipeline(passes.config)
    packet = bytes([what, 0, 0, 1, 2])

    def leaving():
        return [(port, len(sent)) for port, sent in sorted(device.pipeline.engine.process(1, packet))]

    primary.insert(session(5, (3, 0), packet_length_bytes=9))
    assert primary.read(session(5)) == [session(5, (3, 0), packet_length_bytes=9)]
    assert leaving() == [(2, 12), (3, 9)]
    primary.modify(session(5, (3, 0), packet_length_bytes=100))
    assert leaving() == [(2, 12), (3, 12)]
    primary.modify(session(5, (3, 0)))
    assert leaving() == [(2, 12), (3, 12)]


def test_a_clone_that_recirculates_keeps_the_length_of_its_session(primary, device):
    primary.set_pipeline(compiled(TESTS / "stf/truncation.p4").config)
    primary.insert(session(5, (3, 0), packet_length_bytes=6))
    left = device.pipeline.engine.process(1, bytes.fromhex("ffff0600 aabbccdd"))
    assert sorted(packet.hex() for _, packet in left) == ["ffff0602aabb", "ffff0602aabbccdd"]


def test_the_class_of_service_of_clones(entities):
    """It needs a queue of that priority."""
    switch = Device({}, None, 511, priority_queues=4)
    try:
        pipeline = switch.load(entities.config)
        for number in (0, 3):
            entity = session(number + 1, (3, 0), class_of_service=number)
            pipeline.entities.write(p4r.Update(type="INSERT", entity=entity))
            assert list(pipeline.entities.read(session(number + 1))) == [entity]
        with pytest.raises(P4RuntimeError, match=r"class_of_service 4 .* the ports have 4") as refused:
            pipeline.entities.write(p4r.Update(type="INSERT", entity=session(9, (3, 0), class_of_service=4)))
        assert refused.value.code.name == INVALID
    finally:
        switch.stop()


def learnt(source, port=7):
    members = [{"bitstring": bytes([source])}, {"bitstring": bytes([port])}]
    return {"struct": {"members": members}}


def digest(program, **config):
    return p4r.Entity(digest_entry={"digest_id": program.id("learnt_t"), "config": config})


def test_digests_on_the_stream(primary, entities, device):
    assert primary.refusal(primary.modify, digest(entities)).codes == [NOT_FOUND]
    primary.insert(digest(entities, max_list_size=2, max_timeout_ns=10**15, ack_timeout_ns=10**15))
    primary.modify(
        p4r.Entity(
            value_set_entry={
                "value_set_id": entities.id("types"),
                "members": [{"match": [entities.exact(0x800)]}],
            }
        )
    )
    for source in (1, 1, 2, 1, 3, 4):
        device.pipeline.engine.process(7, bytes([8, 0, source, 1, 0, 0]))
    lists = [primary.receive().digest for _ in range(2)]
    assert [list(found.data) for found in lists] == [
        [p4r.DigestList(data=[learnt(a), learnt(b)]).data[n] for n in (0, 1)] for a, b in ((1, 2), (3, 4))
    ]
    primary.send(digest_ack={"digest_id": lists[0].digest_id, "list_id": lists[0].list_id})
    assert primary.read(digest(entities)) == [
        digest(entities, max_list_size=2, max_timeout_ns=10**15, ack_timeout_ns=10**15)
    ]
    primary.delete(digest(entities))
    assert primary.read(p4r.Entity(digest_entry={})) == []


def test_a_wrong_stream_message_is_reported(connect, primary, entities):
    primary.send(digest_ack={"digest_id": 5, "list_id": 1})
    error = primary.receive().error
    assert (error.canonical_code, error.digest_list_ack.digest_list_ack.digest_id) == (3, 5)
    backup = connect()
    backup.open()
    backup.announce(None)
    backup.send(digest_ack={"digest_id": entities.id("learnt_t")})
    assert backup.receive().error.canonical_code == 7
    primary.send(other={"type_url": "elsewhere"})
    error = primary.receive().error
    assert (error.canonical_code, error.other.other.type_url) == (12, "elsewhere")


class Learning:
    """The lists that come of digests at given times (milliseconds)."""

    def __init__(self, program, **config):
        engine = Engine.load(program.device_config)
        self.digests = Digests(PipelineObjects(program.p4info, engine, WatchedPorts(frozenset())))
        self.message = digest(program, **config).digest_entry
        self.digests.insert(self.message)

    def at(self, now, *sources):
        arrived = [Digest("learnt_t", (source, 7)) for source in sources]
        lists = self.digests.collect(arrived, now * MS, 0)
        return [(found.list_id, [d.struct.members[0].bitstring[0] for d in found.data]) for found in lists]


def test_a_list_is_sent_when_it_is_full_or_old(entities):
    learning = Learning(entities, max_list_size=3, max_timeout_ns=10 * MS)
    assert learning.digests.deadline() is None
    assert learning.at(0, 1, 2, 2) == []
    assert learning.digests.deadline() == 10 * MS
    assert learning.at(1, 3, 4) == [(1, [1, 2, 3])]
    assert learning.digests.deadline() == 11 * MS
    assert learning.at(11) == [(2, [4])]


def test_every_digest_at_once_without_a_timeout(entities):
    for config in {"max_list_size": 1, "max_timeout_ns": MS}, {"max_list_size": 9}, {}:
        assert Learning(entities, **config).at(0, 1, 2, 1) == [(1, [1]), (2, [2]), (3, [1])]


def test_what_is_not_acknowledged_is_not_sent_again(entities):
    learning = Learning(entities, max_list_size=1, ack_timeout_ns=10 * MS)
    assert learning.at(0, 1) == [(1, [1])]
    assert learning.at(9, 1) == []
    learning.digests.acknowledge(p4r.DigestListAck(digest_id=learning.message.digest_id, list_id=1))
    assert learning.at(9, 1) == [(2, [1])]
    assert learning.at(19, 1) == [(3, [1])]
    assert learning.at(28, 1) == []


def test_idle_entries_are_reported(primary, entities):
    """Once they have been idle for their timeout, with what the controller gave them."""
    entry = entities.entry(
        "rates",
        entities.exact(5),
        action=entities.action("unmetered"),
        idle_timeout_ns=20 * MS,
        metadata=b"mine",
    )
    primary.insert(entry)
    (found,) = primary.read(entities.entry("rates", time_since_last_hit={}))
    assert found.table_entry.time_since_last_hit.elapsed_ns < 10**12
    for _ in range(2):
        (idle,) = primary.receive().idle_timeout_notification.table_entry
        assert (idle.match, idle.idle_timeout_ns, idle.metadata) == (
            entry.table_entry.match,
            20 * MS,
            b"mine",
        )
    assert primary.read(entities.entry("rates")) == [entry]
    refused = entities.entry("paths", entities.exact(5), idle_timeout_ns=1)
    assert primary.refusal(primary.insert, refused).codes == [INVALID]
    default = entities.entry("rates", is_default_action=True, time_since_last_hit={})
    assert primary.refusal(primary.read, default).codes == [INVALID]
