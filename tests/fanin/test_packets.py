"""Packets from text: what is built, and that nothing of the text is run."""

from __future__ import annotations

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from fanin.packets import PacketError, packet_from_hex, packet_from_layers
from fanin.workers.scapy_layer import SwitchML


@pytest.mark.parametrize("text", ["0102ff", "0x0102ff", "01:02:ff", "01 02 ff"])
def test_hexadecimal_digits_however_they_are_set_apart(text: str) -> None:
    assert packet_from_hex(text) == b"\x01\x02\xff"


def test_layers_are_those_of_scapy() -> None:
    macs = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
    wanted = (
        Ether(**macs)
        / IP(src="10.1.0.1", dst="10.1.0.2", ttl=3)
        / UDP(dport=0xBEE0)
        / SwitchML(tsi=7, values=[-1] * 64)
    )
    text = "Ether()/IP(dst='10.1.0.2', ttl=3)/UDP(dport=0xBEE0)/SwitchML(tsi=7, values=[" + "-1, " * 64 + "])"
    assert packet_from_layers(text, {"Ether": macs, "IP": {"src": "10.1.0.1"}}) == bytes(wanted)
    assert packet_from_layers("UDP()/'text'/b'\\x00'", {}).endswith(b"text\0")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("__import__('os').system('true')", "write layers"),
        ("Ether(dst=open('/etc/passwd').read())", "is not a value"),
        ("Ether()*2", "write layers"),
        ("Ether(*[1])", "write layers"),
        ("IP(**{'ttl': 3})", "IP has no field {'ttl': 3}"),
        ("IP(tl=3)", "IP has no field tl; its fields are version"),
        ("Path()", "Path: no such layer"),
        ("IP(ttl=300)", "IP\\(ttl=300\\): a value does not fit"),
        ("", "write layers"),
        ("(" * 5000, "write layers"),
    ],
)
def test_other_text_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(PacketError, match=complaint):
        packet_from_layers(text, {})
