"""The management call that sets the key of a hash by toeplitz."""

from __future__ import annotations

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.management.hashes import hash_calls
from fanin.p4switch.management.service import ManagementError
from tests.p4switch.engine.hashing import RSS_KEY, hashed, hashing


@pytest.fixture(scope="module")
def switch() -> Engine:
    return hashing("toeplitz", 8)


def test_a_key_is_set(switch: Engine) -> None:
    call = hash_calls(lambda: switch)["SetHashKey"]
    assert call({"calculation": "c", "key": RSS_KEY.hex()}) == {}
    assert hashed(switch, bytes.fromhex("420995bba18e6450")) == 0x323E8FC2


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"key": "00"}, "needs a calculation"),
        ({"calculation": "c", "key": 4}, "needs a calculation"),
        ({"calculation": "c", "key": "xy"}, "not in hexadecimal digits"),
        ({"calculation": "c", "key": "abcdef"}, "a key has 4, 8"),
        ({"calculation": "d", "key": "00000000"}, "no toeplitz calculation d"),
    ],
)
def test_a_wrong_request(switch: Engine, request_: dict[str, object], why: str) -> None:
    with pytest.raises(ManagementError, match=why):
        hash_calls(lambda: switch)["SetHashKey"](request_)


def test_without_a_program_there_is_nothing_to_set() -> None:
    with pytest.raises(ManagementError, match="no program"):
        hash_calls(lambda: None)["SetHashKey"]({"calculation": "c", "key": "00000000"})
