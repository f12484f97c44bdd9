"""Commands that read a file of the user refuse one without an end, before it fills the memory."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from fanin.cli import app


@pytest.mark.parametrize("verb", ["run", "paths", "compile", "lint", "format", "stf"])
def test_a_device_is_too_large(verb: str) -> None:
    files = ["/dev/zero", "/dev/zero"] if verb == "stf" else ["/dev/zero"]
    done = CliRunner().invoke(app, [verb, *files])
    assert done.exit_code in (1, 2)
    assert "/dev/zero" in done.output
    assert "File too large" in done.output
