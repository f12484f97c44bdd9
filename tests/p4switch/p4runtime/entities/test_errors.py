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
