"""Packets from text, of which nothing is run: hexadecimal, or as scapy writes them, `Ether()/IP(dst='10.1.0.2')`."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

# Each makes its layers known to scapy.
import scapy.layers.inet
import scapy.layers.inet6
import scapy.layers.l2  # noqa: F401
from scapy.config import conf
from scapy.packet import Packet, Raw

import fanin.workers.scapy_layer  # noqa: F401

_GRAMMAR = "layers with fields, divided by /, such as Ether()/IP(dst='10.1.0.2')/UDP(dport=5005)/'payload'"


class PacketError(ValueError):
    """The text is not a packet; says what is wrong."""


def packet_from_hex(text: str) -> bytes:
    """The bytes of a packet in hexadecimal, with or without 0x and what sets digits apart: spaces, colons.

    Raises:
        PacketError: it is something else.
    """
    try:
        return bytes.fromhex(text.removeprefix("0x").replace(":", ""))
    except ValueError:
        raise PacketError(
            f"{text} is not a packet: write hexadecimal digits, two for each byte, from the Ethernet header on"
        ) from None


def packet_from_layers(text: str, defaults: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The bytes of a packet; `defaults`: fields by the layer's name, for where none are given.

    Raises:
        PacketError: a layer or field does not exist, or the text is something else.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        raise PacketError(f"{text}: write {_GRAMMAR}") from None
    packet = _layers(tree, defaults)
    try:
        return bytes(packet)
    except Exception as error:  # whatever scapy's fields make of a value that does not fit
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
            f"{name} is not a layer; there are Ether, Dot1Q, ARP, IP, IPv6, UDP, TCP, ICMP, SwitchML, …"
        )
    given = dict(default)
    fields = [field.name for field in known[name].fields_desc]
    for keyword in keywords:
        if keyword.arg is None or keyword.arg not in fields:
            raise PacketError(
                f"{name} has no field {keyword.arg or ast.unparse(keyword.value)}; there are {', '.join(fields)}"
            )
        try:
            given[keyword.arg] = ast.literal_eval(keyword.value)
        except ValueError:
            raise PacketError(f"{name}: {keyword.arg}={ast.unparse(keyword.value)} is not a value") from None
    try:
        return known[name](**given)
    except Exception as error:  # whatever scapy's fields make of a value of the wrong kind
        raise PacketError(f"{name}: {error}") from None
