"""The networks that `fanin up` refuses before it builds them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app


@pytest.mark.parametrize("arguments", [["--jobs-listen", "0"], ["--jobs-tls", "."]])
def test_a_port_for_jobs_and_its_certificates_need_each_other(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["up", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert "Invalid value for --jobs-listen and --jobs-tls: give both or neither" in done.output


def test_a_folder_without_certificates_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["up", "--jobs-listen", "0", "--jobs-tls", str(tmp_path)])
    assert done.exit_code == 2
    assert (
        f"fanin up: {tmp_path / 'ca.crt'}: No such file or directory; ca.crt, server.crt and" in done.output
    )
