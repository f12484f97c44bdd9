"""Tables that match an error: their pipeline is taken, their entries are the program's own."""

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
