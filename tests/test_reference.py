"""The examples of the reference pages run: python-api.md, stf.md, entries.md."""

from __future__ import annotations

import doctest
import json
import re
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from tests.docs.commands import DOCUMENTS

ROOT = Path(__file__).parents[1]
PROGRAM = str(ROOT / "p4src/fanin.p4")
PACKET = "0200000000000200000000000800" + "4500001c00010000401166cc0a0100010a010002" + "0035138d0008d817"

# Blocks of Python: how each begins, and the test that runs it, or the file that it shows.
PYTHON = {
    ("docs/how-to/class.md", "```python"): "tests/classroom/test_labs.py",
    ("docs/how-to/job-client.md", "```python"): "tests/controller/test_grpc.py",
    ("docs/how-to/launch.md", "```python"): "tests/fanin/verbs/running/test_launch.py",
    ("docs/how-to/calls.md", "```python"): "tests/fanin/verbs/running/test_launch.py",
    (
        "docs/how-to/own.md",
        "from fanin.workers.protocol import Worker as participant",
    ): "tests/fanin/test_guide.py",
    ("docs/how-to/results.md", "```python"): "tests/test_reference.py",
    ("docs/how-to/schedule.md", "```python"): "tests/experiments/test_schedule_file.py",
    ("docs/reference/python-api.md", ">>> "): "tests/test_reference.py",
    ("docs/reference/python-api.md", "import fanin"): "tests/fanin/verbs/running/test_launch.py",
    ("docs/how-to/torch.md", "```python"): "tests/fanin/test_torch.py",
    (
        "docs/how-to/torch.md",
        "from fanin import TopK",
    ): "tests/fanin/test_torch.py",
    ("docs/how-to/torch.md", "from fanin.torch import allreduce_hook"): "tests/fanin/test_torch.py",
    (
        "docs/tutorials/tutorial.md",
        '"""A worker: its rank in four numbers, added to those of the others."""',
    ): ("tests/test_tutorial.py"),
    ("labs/12-slow/README.md", "import json"): "tests/classroom/test_labs.py",
}


def test_all_python_of_the_documents_has_a_test_that_runs_it() -> None:
    begins = re.compile(r"(?:^|\n)(?! {4}).*\n\n(?:    (>>> |(?:import|from|\"\"\").*)|(```python))")
    found = {
        (str(document.relative_to(ROOT)), indented or fenced)
        for document in DOCUMENTS
        for indented, fenced in begins.findall(document.read_text())
    }
    assert found == PYTHON.keys()
    for (document, _), test in PYTHON.items():
        assert Path(document).name in (ROOT / test).read_text()


def block(document: str, beginning: str) -> str:
    """The indented block of a document that begins so."""
    paragraphs = (ROOT / "docs" / "reference" / document).read_text().split("\n\n")
    [found] = [text for text in paragraphs if text.startswith(f"    {beginning}")]
    return textwrap.dedent(found) + "\n"


@pytest.mark.slow
def test_the_python_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for name in ("FANIN_HOST", "FANIN_JOB_SERVICE"):
        monkeypatch.delenv(name, raising=False)
    flags = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testfile(
        str(ROOT / "docs/reference/python-api.md"), module_relative=False, optionflags=flags
    )
    assert found.attempted > 10
    assert not found.failed


@pytest.mark.parametrize(("hop", "status"), [("3f", 0), ("3e", 1)])
def test_the_stf_example_passes_and_can_fail(hop: str, status: int, tmp_path: Path) -> None:
    test = tmp_path / "route.stf"
    test.write_text(block("stf.md", "# Port 1").replace("00003f11", f"0000{hop}11"))
    done = CliRunner().invoke(app, ["stf", PROGRAM, str(test)])
    assert done.exit_code == status, done.output


@pytest.mark.parametrize(
    ("conditions", "traced"), [("", 1), ("port=1,ipv4.source=10.1.0.0/16", 1), ("port=2", 0)]
)
def test_the_entries_and_the_filter(conditions: str, traced: int, tmp_path: Path) -> None:
    entries = tmp_path / "entries.json"
    entries.write_text(block("entries.md", "{"))
    words = ["--packet", PACKET, "--entries", str(entries), "--filter", conditions, "--json"]
    done = CliRunner().invoke(app, ["trace", PROGRAM, *words])
    assert done.exit_code == (0 if traced else 1), done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == traced
    for line in lines:
        outputs = [event["port"] for event in line["events"] if event["event"] == "Output"]
        assert outputs == [2]


@pytest.mark.slow
def test_results_are_read_as_results_md_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = ["--set", "loss=0", "--set", "workers=2"]
    done = CliRunner().invoke(app, ["run", "scenario:small-virtual", *changes])
    assert done.exit_code == 0, done.output
    _, program, _ = re.split("```(?:python)?\n", (ROOT / "docs" / "how-to" / "results.md").read_text())
    capsys.readouterr()
    exec(program, {})
    assert re.fullmatch(r"(2 0\.0 [0-9.e-]+\n)+", capsys.readouterr().out)
