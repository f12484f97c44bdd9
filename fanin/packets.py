"""Packets from text: hexadecimal digits, or scapy's notation `Ether()/IP(dst='10.1.0.2')`. No text is executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

# Each registers its layers with scapy.
import scapy.layers.inet
import scapy.layers.inet6
import scapy.layers.l2  # noqa: F401
from scapy.config import conf
from scapy.packet import Packet, Raw

import fanin.workers.scapy_layer  # noqa: F401

_GRAMMAR = "layers with fields, divided by /, such as Ether()/IP(dst='10.1.0.2')/UDP(dport=5005)/'payload'"


class PacketError(ValueError):
    """An error in the text of a packet."""


def packet_from_hex(text: str) -> bytes:
    """Return the bytes of a packet in hexadecimal, with or without 0x, spaces and colons.

    Raises:
        PacketError: If the text is not hexadecimal.
    """
    try:
        return bytes.fromhex(text.removeprefix("0x").replace(":", ""))
    except ValueError:
        raise PacketError(
            f"{text} is not a packet: write two hexadecimal digits per byte, beginning with the Ethernet header"
        ) from None


def packet_from_layers(text: str, defaults: Mapping[str, Mapping[str, Any]]) -> bytes:
    """Return the bytes of a packet in scapy's notation.

    Args:
        text: The layers of the packet, divided by `/`.
        defaults: Values of fields that the text leaves out, by layer and field.

    Raises:
        PacketError: If a layer or field does not exist, or the text is not a packet.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise PacketError(f"{text}: write {_GRAMMAR}") from None
    packet = _layers(tree, defaults)
    try:
        return bytes(packet)
    except Exception as error:  # scapy's fields raise many kinds
        raise PacketError(f"{text}: a value does not fit: {error}") from None


def _layers(node: ast.expr, defaults: Mapping[str, Mapping[str, Any]]) -> Packet:
    match node:
        case ast.BinOp(left, ast.Div(), right):
            return _layers(left, defaults) / _layers(right, defaults)
        case ast.Constant(str() | bytes() as payload):
            return Raw(payload.encode() if isinstance(payload, str) else payload)
        case ast.Call(ast.Name(name), [], keywords):
            return _layer(name, keywords, defaults.get(name, {}))
        case _:
            raise PacketError(f"{ast.unparse(node)}: write {_GRAMMAR}")


def _layer(name: str, keywords: list[ast.keyword], default: Mapping[str, Any]) -> Packet:
    known = {layer.__name__: layer for layer in conf.layers}
    if name not in known:
        raise PacketError(
            f"{name}: no such layer; use Ether, Dot1Q, ARP, IP, IPv6, UDP, TCP, ICMP, SwitchML, …"
        )
    given = dict(default)
    fields = [field.name for field in known[name].fields_desc]
    for keyword in keywords:
        if keyword.arg is None or keyword.arg not in fields:
            raise PacketError(
                f"{name} has no field {keyword.arg or ast.unparse(keyword.value)}; its fields are {', '.join(fields)}"
            )
        try:
            given[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise PacketError(f"{name}: {keyword.arg}={ast.unparse(keyword.value)} is not a value") from None
    try:
        return known[name](**given)
    except Exception as error:  # scapy's fields raise many kinds
        raise PacketError(f"{name}: {error}") from None
