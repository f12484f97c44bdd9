"""Pythons with what a benchmark is compared with."""

import sys
from pathlib import Path

import pytest

from fanin.assurance.bench.pythons import NS3, TORCH, Needed, PythonError, find_python


@pytest.mark.parametrize("needed", [TORCH, NS3])
def test_one_without_is_none_and_an_error_where_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, needed: Needed
) -> None:
    monkeypatch.delenv(needed.variable, raising=False)
    without = tmp_path / "python"
    without.write_text("#!/bin/sh\necho ModuleNotFoundError: this >&2\nexit 1\n")
    without.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(without))
    assert find_python(None, needed) is None
    with pytest.raises(PythonError, match=rf"has no {needed.what}: ModuleNotFoundError"):
        find_python(without, needed)
    monkeypatch.setenv(needed.variable, str(tmp_path / "nowhere"))
    with pytest.raises(PythonError, match="nowhere cannot be run: No such file"):
        find_python(None, needed)


def test_this_one_has_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X", raising=False)
    assert find_python(None, Needed("json", "import json", "X")) == Path(sys.executable)
