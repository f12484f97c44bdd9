"""Other tools' views of the packet: scapy's layer and Wireshark's dissector agree with wire.py."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from fanin.workers import wire
from fanin.workers.scapy_layer import SwitchML

LUA = Path(__file__).parents[2] / "workers" / "wireshark" / "switchml.lua"
INT32 = st.integers(-(2**31), 2**31 - 1)


def packets(count: int = 1, values: int = 64, msg_type: int = wire.UPDATE) -> np.ndarray:
    batch = np.zeros(count, wire.packet_dtype(values))
    batch["kind"] = wire.kind(msg_type, values) | wire.SATURATED
    batch["lease"] = 7
    batch["tsi"] = 1000 + np.arange(count)
    batch["pool_index"] = wire.pool_index(np.arange(count) + 3, 16, 2)
    batch["e0"], batch["e1"], batch["call"] = -126, 0x80, 0xC0FFEE
    batch["values"] = np.arange(values) - 5
    return batch


def frame(data: bytes) -> Ether:
    return Ether() / IP(src="10.1.0.1", dst="10.1.0.254") / UDP(sport=0xBEE0, dport=0xBEE3) / data


@pytest.mark.parametrize("values", wire.SIZES)
def test_scapy_reads_what_a_worker_sends(values):
    packet = Ether(bytes(frame(packets(values=values).tobytes())))[SwitchML]
    assert (packet.msg_type, packet.saturated, packet.size) == (wire.UPDATE, 1, wire.SIZES[values])
    assert (packet.job_number, packet.tsi, packet.version, packet.slot) == (7, 1000, 1, 17)
    assert (packet.e0, packet.not_quantizable, packet.call) == (-126, 1, 0xC0FFEE)
    assert packet.values == list(range(-5, values - 5))


@pytest.mark.parametrize("msg_type", [wire.TAKE, wire.ACKNOWLEDGEMENT])
def test_scapy_reads_packets_without_values_one_after_the_other(msg_type):
    batch = np.zeros(2, wire.packet_dtype(0))
    batch["kind"], batch["tsi"], batch["e1"] = wire.kind(msg_type, 256), [8, 9], wire.OF_SCATTER
    first = Ether(bytes(frame(batch.tobytes())))[SwitchML]
    assert (first.msg_type, first.size, first.tsi, first.values) == (msg_type, wire.SIZES[256], 8, [])
    assert (first.not_quantizable, first.scatter) == (0, 1)
    assert first.payload.tsi == 9


@given(
    tsi=st.integers(0, 2**32 - 1),
    slot=st.integers(0, 2**15 - 1),
    values=st.lists(INT32, min_size=64, max_size=64),
)
def test_scapy_builds_what_a_worker_reads(tsi, slot, values):
    data = bytes(SwitchML(msg_type=wire.RESULT, tsi=tsi, version=1, slot=slot, e0=-3, values=values))
    (packet,) = wire.as_packets(np.frombuffer(data, np.uint8).reshape(1, -1))
    assert packet["kind"] == wire.kind(wire.RESULT, 64)
    assert (packet["tsi"], packet["pool_index"], packet["e0"]) == (tsi, 1 << 15 | slot, -3)
    assert packet["values"].tolist() == values


def test_scapy_shows_each_datagram_of_a_superframe():
    layer = Ether(bytes(frame(packets(count=5).tobytes())))[SwitchML]
    chunks = []
    while isinstance(layer, SwitchML):
        chunks.append(layer.tsi)
        layer = layer.payload
    assert chunks == [1000, 1001, 1002, 1003, 1004]


@pytest.fixture
def dissect(tmp_path):
    """Return tshark's view of each frame: its info column, and the fields of our protocol by name."""

    def dissect(*frames):
        capture = tmp_path / "frames.pcap"
        wrpcap(str(capture), list(frames))
        command = [
            "tshark",
            "-X",
            f"lua_script:{LUA}",
            "-r",
            str(capture),
            "-T",
            "json",
            "--no-duplicate-keys",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert "Lua" not in done.stderr, done.stderr
        return [found["_source"]["layers"] for found in json.loads(done.stdout)]

    return dissect


@pytest.mark.tshark
@pytest.mark.parametrize("values", wire.SIZES)
def test_wireshark_reads_what_a_worker_sends(dissect, values):
    (layers,) = dissect(frame(packets(values=values, msg_type=wire.RESULT).tobytes()))
    shown = layers["switchml"]
    assert {
        name: shown[f"switchml.{name}"] for name in ("msg_type", "size", "job_number", "tsi", "slot")
    } == {
        "msg_type": "1",
        "size": str(wire.SIZES[values]),
        "job_number": "7",
        "tsi": "1000",
        "slot": "17",
    }
    assert [shown[f"switchml.{name}"] for name in ("e0", "not_quantizable", "call")] == [
        "-126",
        "1",
        "0x00c0ffee",
    ]
    assert shown["switchml.values_tree"]["switchml.value"] == [str(n) for n in range(-5, values - 5)]


@pytest.mark.tshark
def test_wireshark_explains_a_superframe(dissect):
    (layers,) = dissect(frame(packets(count=3, values=256).tobytes()))
    assert [shown["switchml.tsi"] for shown in layers["switchml"]] == ["1000", "1001", "1002"]
    assert layers["switchml.superframe"] == "3"
    assert "Segmentation offload" in json.dumps(layers)


@pytest.mark.tshark
def test_wireshark_says_what_is_no_whole_packet(dissect):
    (layers,) = dissect(frame(packets().tobytes()[:100]))
    assert "Not a whole packet" in json.dumps(layers)
