"""Every verb is in the list, and costs nothing until it is called."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pkgutil import resolve_name

import pytest
from typer import Typer
from typer.testing import CliRunner

from fanin.cli import VERBS, app


@pytest.mark.parametrize("name", VERBS)
def test_the_list_says_what_the_verb_says_of_itself(name: str) -> None:
    found = resolve_name(f"fanin.verbs.{VERBS[name].place}")
    help = found.info.help if isinstance(found, Typer) else inspect.getdoc(found)
    assert help
    assert VERBS[name].summary == help.split("\n\n")[0].replace("\n", " ")
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert VERBS[name].summary in shown.stdout


def test_help_imports_no_verb() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from fanin.cli import app; "
        "print(CliRunner().invoke(app, ['--help']).output); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name in shown.stdout for name in VERBS)
    assert not {"fanin.verbs", "numpy", "pydantic", "p4compiler", "p4switch"} & set(shown.stderr.split())


def test_a_verb_that_is_none_is_refused_and_what_is_like_it_named() -> None:
    refused = CliRunner().invoke(app, ["sweeps"])
    assert refused.exit_code == 2
    assert "No such command 'sweeps'. Did you mean 'sweep'?" in refused.stderr
