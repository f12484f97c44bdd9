"""Controllers as they are started inside a network: at once."""

import pytest

from experiments.live.control import candidate
from tests import preloading


@pytest.fixture(autouse=True)
def preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate, "start", preloading.start)
