"""Controllers as they are started inside a network: at once."""

import pytest

from fanin.testbed.control import controller_subprocess as candidate
from tests import preloading


@pytest.fixture(autouse=True)
def preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "start", preloading.start)
