"""Packets to and from the controller (specification, "Packet I/O" and "Stream Error Reporting")."""

import pytest
from finsy.proto import p4i, p4r, p4t
from hypothesis import given
from hypothesis import strategies as st

from fanin.p4switch.p4runtime import arbitration
from fanin.p4switch.p4runtime.arbitration import Client
from fanin.p4switch.p4runtime.codec.translation import Translations
from fanin.p4switch.p4runtime.errors import P4RuntimeError
from fanin.p4switch.p4runtime.packetio import ControllerHeader

FRAME = bytes.fromhex("0000000000bb 0000000000aa 0800") + b"payload"
INVALID, DENIED = 3, 7


def header(name, widths):
    p4info = p4i.P4Info()
    description = p4info.controller_packet_metadata.add()
    description.preamble.name = name
    for number, width in enumerate(widths, 1):
        description.metadata.add(id=number, name=f"f{number}", bitwidth=width)
    return ControllerHeader(p4info, name, (), Translations(p4t.P4TypeInfo()))


@given(st.data(), st.lists(st.integers(1, 70), min_size=1, max_size=8), st.binary(max_size=50))
def test_metadata_survive_the_way_through_the_header(data, widths, payload):
    widths[-1] += -sum(widths) % 8
    values = {number: data.draw(st.integers(0, 2**width - 1)) for number, width in enumerate(widths, 1)}
    message = p4r.PacketOut(payload=payload)
    for number, value in values.items():
        message.metadata.add(metadata_id=number, value=value.to_bytes(10, "big"))
    packet = header("packet_out", widths).pack(message)
    assert len(packet) == sum(widths) // 8 + len(payload)
    received = header("packet_in", widths).unpack(packet)
    assert received.payload == payload
    assert {m.metadata_id: int.from_bytes(m.value, "big") for m in received.metadata} == values


def test_the_first_field_is_the_most_significant():
    message = p4r.PacketOut(
        payload=b"x", metadata=[{"metadata_id": 1, "value": b"\x01"}, {"metadata_id": 2, "value": b"\2"}]
    )
    assert header("packet_out", [9, 7]).pack(message) == b"\x00\x82x"


def test_without_a_controller_header_the_packet_is_the_payload():
    none = ControllerHeader(p4i.P4Info(), "packet_out", (), Translations(p4t.P4TypeInfo()))
    assert none.pack(p4r.PacketOut(payload=b"abc")) == b"abc"
    assert none.unpack(b"abc") == p4r.PacketIn(payload=b"abc")


def test_a_packet_shorter_than_its_header_is_refused():
    with pytest.raises(P4RuntimeError, match="packet_in"):
        header("packet_in", [16]).unpack(b"x")


# Through a switch


def packet_out(port, payload=FRAME):
    values = [{"metadata_id": 1, "value": port.to_bytes(2, "big")}, {"metadata_id": 2, "value": b"\0"}]
    return p4r.PacketOut(payload=payload, metadata=values)


def received(controller):
    packet = controller.receive().packet
    return packet.payload, [int.from_bytes(metadata.value, "big") for metadata in packet.metadata]


def test_a_packet_out_passes_the_program_and_comes_in_again(controller):
    """The program sends it to the port in its metadata: the CPU port, where no packet_in header is added."""
    controller.send(packet=packet_out(255, b"\x01\x02" + FRAME))
    payload, metadata = received(controller)
    assert payload == FRAME
    assert metadata == [0x0102 >> 7, 0x0102 & 0x7F]


def test_a_packet_out_that_is_too_long_is_refused_on_the_stream(controller):
    """And the stream goes on."""
    controller.send(packet=packet_out(255, bytes(65600)))
    error = controller.receive().error
    assert error.canonical_code == INVALID
    assert "at most 65600" in error.message
    controller.send(packet=packet_out(255, b"\x01\x02" + FRAME))
    assert received(controller)[0] == FRAME


@pytest.mark.usefixtures("controller")
def test_only_the_primary_sends_packets(connect):
    backup = connect()
    backup.open()
    backup.announce(0)
    backup.send(packet=packet_out(255))
    error = backup.receive().error
    assert error.canonical_code == DENIED
    assert error.packet_out.packet_out == packet_out(255)


def test_only_the_primary_receives_packets(controller, connect):
    backup = connect()
    backup.open()
    backup.announce(0)
    controller.send(packet=packet_out(255))
    received(controller)
    controller.close_stream()
    assert backup.receive().HasField("arbitration")


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ([], "egress_port (id 1) is missing"),
        ([(1, b"\1")], "(id 2) is missing"),
        ([(1, b"\1"), (2, b"\0"), (7, b"\0")], "no metadata field 7"),
        ([(1, b"\1"), (2, b"\0"), (2, b"\0")], "more than once"),
        ([(1, b"\2\0"), (2, b"\0")], "does not fit bit<9>"),
        ([(1, b""), (2, b"\0")], "empty"),
    ],
)
def test_wrong_metadata_are_reported_on_the_stream(controller, metadata, why):
    fields = [{"metadata_id": number, "value": value} for number, value in metadata]
    controller.send(packet=p4r.PacketOut(payload=FRAME, metadata=fields))
    error = controller.receive().error
    assert error.canonical_code == INVALID
    assert why in error.message


def test_before_a_pipeline_is_set_packets_are_refused(connect):
    primary = connect().become_primary()
    primary.send(packet=packet_out(1))
    assert "No forwarding pipeline config" in primary.receive().error.message


def test_a_refused_packet_is_returned_unless_it_is_long(connect):
    other = connect()
    other.open()
    for size, returned in ((1500, 1500), (1_000_000, 0)):
        other.send(packet=p4r.PacketOut(payload=bytes(size)))
        error = other.receive().error
        assert error.canonical_code == DENIED
        assert len(error.packet_out.packet_out.payload) == returned


def test_an_error_quotes_only_so_much():
    assert len(str(P4RuntimeError(None, "x" * 1_000_000))) < 3000


# Packets that come faster than they are read


def packet_in_message(payload=b""):
    return p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=payload))


def test_packets_beyond_the_queue_of_a_controller_are_counted_and_logged(caplog):
    client = Client()
    for _ in range(arbitration._MAX_QUEUED_PACKETS + 3):
        client.offer(packet_in_message())
    assert client.lost == 3
    for _ in range(arbitration._MAX_QUEUED_PACKETS):
        client.take()
        client.offer(packet_in_message())
        client.take()
    assert client.lost == 3
    assert [record.getMessage() for record in caplog.records] == [
        "packets to a controller are being lost: it does not keep up",
        "3 packets to a controller were lost, 3 since it connected",
    ]


def test_the_queue_of_a_controller_is_bounded_in_bytes(caplog):
    client = Client()
    large = packet_in_message(bytes(1 << 20))
    for _ in range(20):
        client.offer(large)
    assert 0 < client.lost < 5
    assert "being lost" in caplog.text


@pytest.mark.slow
def test_every_packet_of_a_burst_arrives_or_is_counted(controller, device):
    packet = device.pipeline.packet_out.pack(packet_out(255, b"\x01\x02" + FRAME))
    [client] = device.controllers.primaries
    for _ in range(5000):
        device.pipeline.engine.packet_out(packet, 255)
    arrived = 0
    while arrived + client.lost + device.pipeline.engine.port_statistics()[255].dropped < 5000:
        assert controller.receive().HasField("packet")
        arrived += 1
    assert arrived > 0
