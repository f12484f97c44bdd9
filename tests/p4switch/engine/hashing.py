"""Programs that hash."""

from __future__ import annotations

from fanin.p4switch.engine.engine import Engine
from tests.p4switch.documents import document, field, number


def hashing(algorithm: str, size: int) -> Engine:
    """A switch that puts the hash of a packet's first bytes behind them."""
    calculation = {
        "name": "c",
        "id": 0,
        "algo": algorithm,
        "input": [{"type": "field", "value": ["h", "text"]}],
    }
    named = {"type": "calculation", "value": "c"}
    parameters = [field("h", "hash"), number(0), named, number((1 << 64) - 1)]
    program = document(
        {"h": [["text", 8 * size, False], ["hash", 64, False]]},
        [{"op": "modify_field_with_hash_based_offset", "parameters": parameters}],
        calculations=[calculation],
    )
    return Engine.load(program)


def hashed(switch: Engine, text: bytes) -> int:
    [(_, out)] = switch.process(1, text + bytes(8))
    return int.from_bytes(out[len(text) :], "big")


RSS_KEY = bytes.fromhex("6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa")
