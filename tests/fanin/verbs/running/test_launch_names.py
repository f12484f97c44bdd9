"""Names that `fanin launch` gives to jobs, or refuses."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.native.text import is_name
from fanin.verbs.running.launch import _name_after


@pytest.mark.parametrize("name", ["x" * 65, "\x1b[2J", "a\nb"])
def test_a_name_that_the_job_service_would_refuse_is_refused_at_once(name: str) -> None:
    done = CliRunner().invoke(app, ["launch", "--job", name, __file__], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert (
        "Invalid value for --job: the name of a job has at most 64 characters, all of them printable"
        in done.output
    )


@pytest.mark.parametrize("program", ["train.py", "/home/me/" + "long" * 50 + ".py", "\x1b[2J.py"])
def test_a_name_after_a_program_is_one(program: str) -> None:
    assert is_name(_name_after(program, 12345))
    assert _name_after(program, 12345).endswith("-12345")
