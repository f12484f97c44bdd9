"""Tables that match an error: their pipeline is taken, their entries are the program's own."""

import pytest
from finsy.proto import p4r

from fanin.p4compiler import compile_once
from tests.p4switch.p4runtime.conftest import Program

ERRORS = """
#include <core.p4>
#include <v1model.p4>
header byte_t { bit<8> value; }
struct headers_t { byte_t byte; }
struct metadata_t {}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start { packet.extract(hdr.byte); transition accept; }
}
control none(inout headers_t hdr, inout metadata_t meta) { apply {} }
control ingress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action send(bit<9> port) { standard.egress_spec = port; }
    table fixed {
        key = { standard.parser_error: exact; }
        actions = { send; }
        const entries = { error.NoError: send(2); error.PacketTooShort: send(3); }
    }
    table free {
        key = { standard.parser_error: exact; }
        actions = { send; }
        default_action = send(4);
    }
    apply { if (!fixed.apply().hit) { free.apply(); } }
}
control egress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) { apply {} }
control deparse(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.byte); } }
V1Switch(P(), none(), ingress(), egress(), none(), deparse()) main;
"""


def test_errors_as_keys_are_read_by_their_numbers_and_not_written(tmp_path, device, connect):
    """P4Runtime has no values for them; BMv2 refuses them, too, and dies when they are read."""
    source = tmp_path / "errors.p4"
    source.write_text(ERRORS)
    made = compile_once(source)
    errors = Program(made.p4info, made.device_config())
    controller = connect().become_primary()
    controller.set_pipeline(errors.config)
    assert [device.pipeline.engine.process(1, packet)[0][0] for packet in (b"x", b"")] == [2, 3]
    read = [entity.table_entry for entity in controller.read(p4r.Entity(table_entry=p4r.TableEntry()))]
    assert [entry.match[0].exact.value for entry in read] == [b"\0", b"\1"]
    entry = errors.entry("free", errors.exact(1), action=errors.action("send", b"\5"))
    assert controller.refusal(controller.insert, entry).codes == ["UNIMPLEMENTED"]


# Messages on ids that do not exist, and on batches


@pytest.mark.parametrize(
    ("entity", "names"),
    [
        ({"table_entry": {"table_id": 7}}, "no table with the id 0x7 (7); there are Forward.hosts ("),
        (
            {"register_entry": {"register_id": 7}},
            "no register with the id 0x7 (7); there are Forward.last_type (",
        ),
        (
            {"counter_entry": {"counter_id": 7}},
            "no counter with the id 0x7 (7); there are Forward.arrivals (",
        ),
        ({"meter_entry": {"meter_id": 7}}, "no meter with the id 0x7 (7); there are "),
        ({"value_set_entry": {"value_set_id": 7}}, "no value set with the id 0x7 (7); there are "),
        ({"digest_entry": {"digest_id": 7}}, "no digest with the id 0x7 (7); there are "),
        (
            {"action_profile_member": {"action_profile_id": 7}},
            "no action profile with the id 0x7 (7); there are ",
        ),
    ],
)
def test_an_unknown_id_is_answered_with_those_there_are(controller, entity, names):
    refused = controller.refusal(controller.modify, p4r.Entity(**entity))
    assert names in refused.details[0].message


def test_ids_are_listed_in_decimal_with_their_names(controller, program):
    refused = controller.refusal(controller.insert, p4r.Entity(table_entry={"table_id": 7}))
    assert f"Forward.hosts ({program.id('hosts')})" in refused.message


def test_key_fields_and_parameters_are_named(controller, program):
    def insert(change):
        entity = program.host(1)
        change(entity.table_entry)
        return controller.refusal(controller.insert, entity).details[0].message

    def other_field(entry):
        entry.match[0].field_id = 9

    def other_parameter(entry):
        entry.action.action.params[0].param_id = 9

    def twice(entry):
        entry.match.append(entry.match[0])

    assert "no key field 9, only hdr.ethernet.destination (1)" in insert(other_field)
    assert "no parameter 9, only port (1)" in insert(other_parameter)
    assert "hdr.ethernet.destination of table Forward.hosts is given more than once" in insert(twice)


def test_a_batch_says_which_update_failed_first(controller, program):
    refused = controller.refusal(controller.insert, program.host(1), program.host(1), program.host(2))
    assert refused.codes == ["OK", "ALREADY_EXISTS", "OK"]
    assert refused.message.startswith("1 of 3 failed, the first is number 1: ")


def test_a_message_does_not_repeat_a_long_value(controller, program):
    entity = program.host(1)
    entity.table_entry.match[0].exact.value = b"\xab" * 1_000_000
    refused = controller.refusal(controller.insert, entity)
    assert len(refused.message) < 300
    assert "(1,000,000 bytes)" in refused.message


# Messages on values: in the form in which people write them


def test_an_entry_that_exists_is_named_by_its_key(controller, program):
    controller.insert(program.host(0x0A00000000FF))
    refused = controller.refusal(controller.insert, program.host(0x0A00000000FF))
    assert refused.details[0].message == (
        "table Forward.hosts has an entry for hdr.ethernet.destination = 0a:00:00:00:00:ff already: "
        "MODIFY it, or DELETE it first"
    )


def test_an_entry_that_does_not_exist_is_named_by_its_key(controller, program):
    refused = controller.refusal(controller.modify, program.host(0x0A00000000FF))
    assert refused.details[0].message == (
        "table Forward.hosts has no entry for hdr.ethernet.destination = 0a:00:00:00:00:ff"
    )


def test_an_entry_with_another_priority_is_pointed_at(controller, program):
    def rule(priority):
        return program.entry("acl", program.ternary(5, 7), action=program.action("drop"), priority=priority)

    controller.insert(rule(10))
    refused = controller.refusal(controller.delete, rule(20))
    assert " with priority 20; there is one with priority 10" in refused.details[0].message


def test_an_address_is_written_as_its_annotation_says(connect, program):
    config = p4r.ForwardingPipelineConfig()
    config.CopyFrom(program.config)
    (routes,) = (table for table in config.p4info.tables if table.preamble.alias == "routes")
    routes.match_fields[0].annotations.append("@format(IPV4_ADDRESS)")
    controller = connect().become_primary()
    controller.set_pipeline(config)
    refused = controller.refusal(controller.insert, program.route(0x0A010203, 16))
    assert "10.1.2.3 has ones after its prefix of 16 bits; the prefix is 10.1.0.0/16" in refused.message
