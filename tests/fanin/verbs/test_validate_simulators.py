"""`fanin validate --tier simulators` fails where an incast is not as in htsim, and results are there all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from fanin.assurance.validation import lossless_incast, simulators
from fanin.assurance.validation.lossless_incast import AS_HTSIM, Incast, Seen, Victim
from fanin.verbs.validate import validate


@pytest.mark.parametrize("below_half", [13, 1])
def test_the_exit_status_says_whether_an_incast_is_as_in_htsim(
    below_half: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def victim(incast: Incast, _: object) -> Victim:
        return Victim(incast, (Seen(sharing=6, below_half=below_half, under_used=14, shares=(), lasted=24),))

    monkeypatch.setattr(simulators, "CASES", ())
    monkeypatch.setattr(lossless_incast, "INCASTS", (AS_HTSIM,))
    monkeypatch.setattr(lossless_incast, "run", victim)
    if below_half == 1:
        with pytest.raises(typer.Exit) as ended:
            validate("simulators", [], results=tmp_path)
        assert ended.value.exit_code == 1
        assert "deviates too much from htsim: incast, 64 hosts, 50 packets each" in capsys.readouterr().err
    else:
        validate("simulators", [], results=tmp_path)
        assert not capsys.readouterr().err
    (incast,) = json.loads((tmp_path / "simulators.json").read_text())["incasts"]
    assert incast["milliseconds"]["below_half"] == below_half
