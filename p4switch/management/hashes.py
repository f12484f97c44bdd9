"""The management call "SetHashKey", which sets the key of a toeplitz calculation. BMv2 has such a call over Thrift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.entries import TableError
from fanin.p4switch.management.service import ManagementError, Method


def hash_calls(running: Callable[[], Engine | None]) -> dict[str, Method]:
    """Return the call SetHashKey: {"calculation": NAME, "key": HEX} returns {}.

    The key is kept until another pipeline is set. Errors are raised as ManagementError.
    """

    def set_hash_key(request: dict[str, Any]) -> dict[str, Any]:
        match request:
            case {"calculation": str(name), "key": str(digits)}:
                pass
            case _:
                raise ManagementError(
                    "SetHashKey needs a calculation (its name) and a key (hexadecimal digits)"
                )
        engine = running()
        if engine is None:
            raise ManagementError("the switch has no program")
        try:
            engine.set_hash_key(name, bytes.fromhex(digits))
        except ValueError:
            raise ManagementError(f"key: {digits!r} is not in hexadecimal digits") from None
        except TableError as error:
            raise ManagementError(error.message) from None
        return {}

    return {"SetHashKey": set_hash_key}
