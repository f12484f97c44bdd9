"""The engines of the workers: C, and numpy."""

from __future__ import annotations

import pytest

from fanin.workers.engines import native


@pytest.fixture(params=["C", "numpy"])
def passes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose the code that does the workers' work on packets."""
    if request.param == "numpy":
        monkeypatch.setattr(native, "library", lambda: None)
    elif native.library() is None:
        pytest.skip("no C compiler")
    name: str = request.param
    return name
