"""Garbage is left alone while many objects are made that stay."""

from __future__ import annotations

import gc

import pytest

from fanin.native.collector import without_collector


@pytest.mark.parametrize("enabled", [True, False])
def test_python_looks_for_garbage_as_before_afterwards(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    switched: list[bool] = []
    monkeypatch.setattr(gc, "isenabled", lambda: enabled)
    monkeypatch.setattr(gc, "disable", lambda: switched.append(False))
    monkeypatch.setattr(gc, "enable", lambda: switched.append(True))

    def makes_too_many() -> None:
        with without_collector():
            assert switched == [False]
            raise MemoryError

    with pytest.raises(MemoryError):
        makes_too_many()
    assert switched == ([False, True] if enabled else [False])
