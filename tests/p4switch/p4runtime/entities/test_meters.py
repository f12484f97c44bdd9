"""Meters of each type, their counters by colour, and what a table's default entry counts and meters."""

import json
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r

from fanin.p4compiler import compile_once
from tests.p4switch.p4runtime.conftest import Program

INVALID, NOT_FOUND, DENIED = "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED"
GREEN, YELLOW, RED = range(3)
SRTCM = {"cir": 1000, "cburst": 2, "pir": 1000, "pburst": 2, "eburst": 3}
ZEROS = {color: {"packet_count": 0, "byte_count": 0} for color in ("green", "yellow", "red")}


@pytest.fixture(scope="session")
def meters():
    made = compile_once(Path(__file__).with_name("meters.p4"))
    return Program(made.p4info, json.dumps(made.json).encode())


@pytest.fixture
def primary(connect, meters):
    controller = connect().become_primary()
    controller.set_pipeline(meters.config)
    return controller


@pytest.fixture
def colors(device):
    """The direct and the indirect meter's colour of each of `count` packets of 3 bytes that come at once."""

    def colors(count=1, *, source=5, now=1):
        engine = device.pipeline.engine
        sent = [engine.process(7, bytes([source, 9, 9]), now)[0][1] for _ in range(count)]
        return [packet[1] for packet in sent], [packet[2] for packet in sent]

    return colors


def rate(meters, **fields):
    return meters.entry("rates", meters.exact(5), action=meters.action("metered"), **fields)


def default(meters, **fields):
    return meters.entry("rates", is_default_action=True, **fields)


def key(entity):
    entry = entity.table_entry
    fields = {"is_default_action": True} if entry.is_default_action else {"match": entry.match}
    return {"table_id": entry.table_id, **fields}


def direct(entity, **fields):
    return p4r.Entity(direct_meter_entry={"table_entry": key(entity), **fields})


def counter(entity, **fields):
    return p4r.Entity(direct_counter_entry={"table_entry": key(entity), **fields})


def volume(meters, index, **fields):
    (number,) = (m.preamble.id for m in meters.p4info.meters if m.preamble.alias == "volume")
    return p4r.Entity(meter_entry={"meter_id": number, "index": {"index": index}, **fields})


def by_color(data):
    return [(c.packet_count, c.byte_count) for c in (data.green, data.yellow, data.red)]


# Types


def test_the_type_in_p4info_goes_before_an_annotation(connect, meters):
    config = meters.config
    config.p4info.direct_meters[0].spec.type = p4i.MeterSpec.SINGLE_RATE_TWO_COLOR
    controller = connect().become_primary()
    controller.set_pipeline(config)
    assert controller.refusal(controller.insert, rate(meters, meter_config=SRTCM)).codes == [INVALID]


def test_without_either_there_are_two_rates(connect, meters):
    config = meters.config
    config.p4info.direct_meters[0].preamble.ClearField("annotations")
    controller = connect().become_primary()
    controller.set_pipeline(config)
    assert controller.refusal(controller.insert, rate(meters, meter_config=SRTCM)).codes == [INVALID]
    two = {"cir": 1, "cburst": 2, "pir": 3, "pburst": 4}
    controller.insert(rate(meters, meter_config=two))


def test_a_single_rate_has_an_excess_burst(primary, meters, colors):
    """RFC 2697: two at once are green, three more yellow; what comes then fills the committed bucket first."""
    entry = rate(meters, meter_config=SRTCM)
    primary.insert(entry)
    assert colors(6)[0] == [GREEN, GREEN, YELLOW, YELLOW, YELLOW, RED]
    assert colors(3, now=2001)[0] == [GREEN, GREEN, RED]  # two came, for two there was room
    assert colors(4, now=5001)[0] == [GREEN, GREEN, YELLOW, RED]  # three came, one into the excess bucket
    assert primary.read(rate(meters, meter_config={})) == [entry]


def test_without_an_excess_burst_a_single_rate_has_two_colors(primary, meters, colors):
    entry = rate(meters, meter_config=SRTCM | {"eburst": 0})
    primary.insert(entry)
    assert colors(3)[0] == [GREEN, GREEN, RED]
    assert primary.read(rate(meters, meter_config={})) == [entry]


def test_an_entry_with_a_meter_that_cannot_be_is_not_inserted(primary, meters):
    refused = primary.refusal(primary.insert, rate(meters, meter_config=SRTCM | {"pir": 1001}))
    assert refused.codes == [INVALID]
    assert primary.read(rate(meters)) == []


def test_the_single_rate_of_an_indirect_meter(primary, meters, colors):
    config = {"cir": 3000, "cburst": 6, "pir": 3000, "pburst": 6}
    primary.modify(volume(meters, 2, config=config))
    assert colors(3, source=2)[1] == [GREEN, GREEN, RED]
    assert colors(2, source=2, now=1001)[1] == [GREEN, RED]
    refused = primary.refusal(primary.modify, volume(meters, 2, config=config | {"eburst": 1}))
    assert refused.codes == [INVALID]


def test_rates_are_read_as_they_were_written_whatever_they_are(primary, meters):
    for rate_ in (1, 2**53 + 1, 2**63 - 1):
        entity = volume(meters, 2, config=dict.fromkeys(("cir", "cburst", "pir", "pburst"), rate_))
        primary.modify(entity)
        assert primary.read(volume(meters, 2)) == [entity]


def test_a_rate_beyond_all_clocks_is_always_green(primary, meters, colors):
    primary.modify(volume(meters, 2, config={"cir": 2**63 - 1, "cburst": 3, "pir": 2**63 - 1, "pburst": 3}))
    for now in (1, 10**6, 2 * 10**12):
        assert colors(source=2, now=now)[1] == [GREEN]


# Counters by colour


def test_a_direct_meter_counts_by_color(primary, meters, colors):
    primary.insert(rate(meters, meter_config=SRTCM))
    colors(6)
    (found,) = primary.read(direct(rate(meters), counter_data={}))
    assert by_color(found.direct_meter_entry.counter_data) == [(2, 6), (3, 9), (1, 3)]
    (found,) = primary.read(rate(meters, meter_counter_data={}))
    assert by_color(found.table_entry.meter_counter_data) == [(2, 6), (3, 9), (1, 3)]
    (found,) = primary.read(direct(rate(meters)))
    assert not found.direct_meter_entry.HasField("counter_data")


def test_a_meter_without_rates_counts_green(primary, meters, colors):
    primary.insert(rate(meters))
    colors(2)
    (found,) = primary.read(direct(rate(meters), counter_data={}))
    assert by_color(found.direct_meter_entry.counter_data) == [(2, 6), (0, 0), (0, 0)]


def test_an_indirect_meter_counts_by_color(primary, meters, colors):
    primary.modify(volume(meters, 2, config={"cir": 1, "cburst": 3, "pir": 1, "pburst": 3}))
    colors(3, source=2)
    (found,) = primary.read(volume(meters, 2, counter_data={}))
    assert by_color(found.meter_entry.counter_data) == [(1, 3), (0, 0), (2, 6)]
    (found,) = primary.read(volume(meters, 2))
    assert not found.meter_entry.HasField("counter_data")


@pytest.mark.parametrize("zeros", [{}, ZEROS])
def test_counters_by_color_are_set_to_zero_and_nothing_else(primary, meters, colors, zeros):
    """They are set by the direct meter, by its entry, and by an indirect meter; a config that is left out is reset."""
    primary.insert(rate(meters, meter_config=SRTCM))
    writes = (
        (direct, lambda data: direct(rate(meters), config=SRTCM, counter_data=data)),
        (rate, lambda data: rate(meters, meter_config=SRTCM, meter_counter_data=data)),
        (volume, lambda data: volume(meters, 5 % 4, counter_data=data)),
    )
    for _, write in writes:
        colors(2), colors(2, source=1)
        refused = primary.refusal(primary.modify, write({"yellow": {"packet_count": 1}}))
        assert refused.codes == [INVALID]
        primary.modify(write(zeros))
        (metered,) = primary.read(direct(rate(meters), counter_data={}))
        (indirect,) = primary.read(volume(meters, 1, counter_data={}))
        if write is writes[2][1]:
            assert by_color(indirect.meter_entry.counter_data) == [(0, 0)] * 3
        else:
            assert by_color(metered.direct_meter_entry.counter_data) == [(0, 0)] * 3
            primary.modify(direct(rate(meters), config=SRTCM))  # full buckets
            colors(1)
            primary.modify(direct(rate(meters), config=SRTCM))  # counters unset: as they were
            (metered,) = primary.read(direct(rate(meters), counter_data={}))
            assert by_color(metered.direct_meter_entry.counter_data) == [(1, 3), (0, 0), (0, 0)]


def test_an_insertion_cannot_set_counters_by_color(primary, meters):
    wrong = rate(meters, meter_counter_data={"red": {"byte_count": 1}})
    assert primary.refusal(primary.insert, wrong).codes == [INVALID]
    primary.insert(rate(meters, meter_counter_data=ZEROS))


def test_a_batch_that_is_rolled_back_brings_the_counters_back(primary, meters, colors):
    primary.insert(rate(meters, meter_config=SRTCM))
    primary.modify(volume(meters, 2, config=SRTCM | {"eburst": 0}))
    primary.modify(direct(default(meters), config=SRTCM))
    colors(6), colors(1, source=2), colors(1, source=9)
    queries = (
        *(direct(rate(meters), counter_data={}), direct(default(meters), counter_data={})),
        *(volume(meters, 2, counter_data={}), counter(rate(meters)), counter(default(meters))),
    )
    before = primary.read(*queries)
    refused = primary.refusal(
        primary.write,
        ("MODIFY", volume(meters, 2, counter_data={})),
        ("MODIFY", default(meters, counter_data={"packet_count": 77})),
        ("MODIFY", direct(rate(meters), counter_data={})),
        ("DELETE", rate(meters)),
        ("DELETE", rate(meters)),
        atomicity="ROLLBACK_ON_ERROR",
    )
    assert refused.codes == ["ABORTED"] * 4 + [NOT_FOUND]
    assert primary.read(*queries) == before


# The default entry


def test_the_default_entry_counts_what_misses(primary, meters, colors):
    primary.insert(rate(meters))
    colors(3, source=6), colors(1, source=5)
    missed = {"packet_count": 3, "byte_count": 9}
    assert primary.read(counter(default(meters))) == [counter(default(meters), data=missed)]
    (found,) = primary.read(default(meters, counter_data={}))
    assert found.table_entry.counter_data == p4r.CounterData(**missed)
    primary.modify(counter(default(meters), data={"packet_count": 1}))
    (found,) = primary.read(default(meters, counter_data={}))
    assert found.table_entry.counter_data == p4r.CounterData(packet_count=1)
    assert [e.direct_counter_entry.table_entry.match for e in primary.read(counter(rate(meters)))] == [
        [meters.exact(5)]
    ]


def test_the_default_entry_meters_what_misses(primary, meters, colors):
    """Once it has rates: before, its meter is not run, as on BMv2."""
    colors(2, source=6)
    query = direct(default(meters), counter_data={})
    (found,) = primary.read(query)
    assert by_color(found.direct_meter_entry.counter_data) == [(0, 0)] * 3
    primary.modify(direct(default(meters), config=SRTCM))
    assert colors(6, source=6)[0] == [GREEN, GREEN, YELLOW, YELLOW, YELLOW, RED]
    (found,) = primary.read(query)
    assert found == direct(default(meters), config=SRTCM, counter_data=found.direct_meter_entry.counter_data)
    assert by_color(found.direct_meter_entry.counter_data) == [(2, 6), (3, 9), (1, 3)]


def test_the_default_entry_is_written_with_its_resources(primary, meters, colors):
    written = default(meters, meter_config=SRTCM, counter_data={"packet_count": 10})
    written.table_entry.action.action.CopyFrom(meters.action("metered"))
    primary.modify(written)
    query = default(meters, meter_config={}, counter_data={})
    assert primary.read(query) == [written]
    assert colors(3, source=6)[0] == [GREEN, GREEN, YELLOW]
    primary.modify(default(meters))  # reset: so is the meter, but not what has been counted
    (found,) = primary.read(query)
    assert not found.table_entry.HasField("meter_config")
    assert found.table_entry.counter_data == p4r.CounterData(packet_count=13, byte_count=9)


def test_a_table_without_keys_counts_in_its_default_entry(primary, meters, colors):
    colors(2)
    always = meters.entry("always", is_default_action=True)
    (found,) = primary.read(counter(always))
    assert found.direct_counter_entry.data == p4r.CounterData(packet_count=2, byte_count=6)
    primary.modify(counter(always, data={}))  # a const default's counter may be set
    denied = meters.entry("always", is_default_action=True, counter_data={})
    assert primary.refusal(primary.modify, denied).codes == [DENIED]
    assert primary.refusal(primary.read, direct(always)).codes == [INVALID]


def test_a_table_without_keys_is_read_like_others(primary, meters):
    (found,) = primary.read(meters.entry("quietly", is_default_action=True))
    assert found.table_entry.action.action == meters.action("leave", b"\4")
    assert found.table_entry.is_const
    assert primary.read(p4r.Entity(table_entry={})) == []


def test_the_default_entrys_resources_have_no_match(primary, meters):
    wrong = direct(default(meters))
    wrong.direct_meter_entry.table_entry.match.append(meters.exact(5))
    assert primary.refusal(primary.read, wrong).codes == [INVALID]
    assert primary.refusal(primary.modify, wrong).codes == [INVALID]


# A pipeline that takes over another's state


def test_rates_are_kept_by_a_reconciliation(primary, meters, colors):
    primary.insert(rate(meters, meter_config=SRTCM))
    primary.modify(direct(default(meters), config=SRTCM))
    primary.modify(volume(meters, 2, config=SRTCM | {"eburst": 0}))
    other = json.loads(meters.device_config) | {"program": "another"}
    config = meters.config
    config.p4_device_config = json.dumps(other).encode()
    primary.set_pipeline(config, "RECONCILE_AND_COMMIT")
    assert colors(3)[0] == colors(3, source=6)[0] == [GREEN, GREEN, YELLOW]
    (found,) = primary.read(volume(meters, 2))
    assert found == volume(meters, 2, config=SRTCM | {"eburst": 0})
