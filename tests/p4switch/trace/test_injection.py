"""The requests that the management call Inject refuses.

What it does, a network that is up shows: tests/fanin/verbs/running/test_running.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.management.service import ManagementError
from fanin.p4switch.trace.injection import inject_call


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        ({"port": 1}, "needs a port"),
        ({"port": "1", "packet": "00"}, "needs a port"),
        ({"port": 1, "packet": "0g"}, "packet: '0g' is not in hexadecimal digits"),
        ({"port": 1, "packet": "00"}, "the switch has no port 1; there are none"),
    ],
)
def test_a_wrong_request(engine: Callable[[str], Engine], request_: dict[str, object], why: str) -> None:
    with pytest.raises(ManagementError, match=why):
        inject_call(lambda: engine("forwarder"))["Inject"](request_)


def test_without_a_program_there_is_nothing_to_inject_into() -> None:
    with pytest.raises(ManagementError, match="no program"):
        inject_call(lambda: None)["Inject"]({"port": 1, "packet": "00"})
