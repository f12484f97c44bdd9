"""`fanin validate --tier theory` fails where a value is not what theory derives, and results are there all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from fanin.assurance.validation.theory import values
from fanin.assurance.validation.theory.derived import Derived
from fanin.verbs.validate import validate


@pytest.mark.parametrize("virtual", [0.99, 0.9])
def test_the_exit_status_says_whether_values_are_those_of_theory(
    virtual: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Derived(what="link used", theory=1.0, virtual=virtual, form=".0%", lowest=-0.05, highest=0.0)
    monkeypatch.setattr(values, "values", lambda _: iter([found]))
    if found.agrees:
        validate("theory", [], results=tmp_path)
        assert not capsys.readouterr().err
    else:
        with pytest.raises(typer.Exit) as ended:
            validate("theory", [], results=tmp_path)
        assert ended.value.exit_code == 1
        assert capsys.readouterr().err == "fanin validate: differs from theory: link used\n"
    (written,) = json.loads((tmp_path / "theory.json").read_text())["values"]
    assert written["virtual"] == virtual
    assert written["error"] == pytest.approx(virtual - 1)
