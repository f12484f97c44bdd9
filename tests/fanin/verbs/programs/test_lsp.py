"""`fanin lsp` without what it needs; tests/language_server has the others."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from fanin.cli import app


@pytest.mark.parametrize("missing", ["pygls", "lsprotocol"])
def test_without_pygls_it_names_what_to_install(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    for name in [n for n in sys.modules if n.startswith((missing, "fanin.language_server.server"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    done = CliRunner().invoke(app, ["lsp"])
    assert done.exit_code == 1
    assert done.stderr == (
        "fanin lsp: the package pygls is missing; to install it, type make setup in the clone, "
        f"or {sys.executable} -m pip install 'fanin[editor]'\n"
    )
