"""`fanin validate --tier closed-form` fails where a size is not predicted, and refuses what has no effect on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from fanin.assurance.validation import calibration
from fanin.assurance.validation.calibration import HELD_OUT, Fit, Prediction
from fanin.verbs.validate import validate
from tests.fanin.conftest import Fanin


@pytest.mark.parametrize("seconds", [0.9e-3, 0.5e-3])
def test_the_exit_status_says_whether_sizes_held_out_are_predicted(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    size = HELD_OUT[0]
    form = Fit("ring", 0.0, 1e-3 / (2 * 7 / 8 * size))  # 1 ms
    found = Prediction("ring", size, form, seconds + 0.05e-3, 1e-3)
    monkeypatch.setattr(calibration, "calibrate", lambda _: iter([found]))
    if found.agrees:
        validate("closed-form", [], results=tmp_path)
        assert not capsys.readouterr().err
    else:
        with pytest.raises(typer.Exit) as ended:
            validate("closed-form", [], results=tmp_path)
        assert ended.value.exit_code == 1
        assert capsys.readouterr().err == "fanin validate: held-out sizes are not predicted within 10%\n"
    (written,) = json.loads((tmp_path / "closed-form.json").read_text())["predictions"]
    assert written["seconds"] == found.seconds


def test_numbers_of_workers_are_for_the_live_tier(fanin: Fanin, tmp_path: Path) -> None:
    done = fanin("validate", "--tier", "closed-form", "--workers", "2", "--results", str(tmp_path))
    assert (done.returncode, done.stderr) == (
        2,
        "fanin validate: --workers: works only with --tier live; leave it out\n",
    )
    assert not list(tmp_path.iterdir())
