"""`fanin validate --tier papers` fails where a figure is not as in its paper, and results are there all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from fanin.assurance.validation.papers import figures
from fanin.assurance.validation.papers.published import Published
from fanin.verbs.validate import validate

RATIO = Published(
    what="ratio", source="Nobody, 2026", value="up to 2", least=1.5, most=2.0, form=".1f", why="it is not"
)


@pytest.mark.parametrize("ours", [1.75, 2.5])
def test_the_exit_status_says_whether_figures_are_as_in_papers(
    ours: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "figures", lambda _: iter([RATIO.compared_with(ours)]))
    if ours > RATIO.most:
        with pytest.raises(typer.Exit) as ended:
            validate("papers", [], results=tmp_path)
        assert ended.value.exit_code == 1
        assert capsys.readouterr().err == "fanin validate: differs from the papers: ratio\n"
    else:
        validate("papers", [], results=tmp_path)
        assert not capsys.readouterr().err
    (figure,) = json.loads((tmp_path / "papers.json").read_text())["figures"]
    assert figure["ours"] == ours
