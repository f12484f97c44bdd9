"""The names that `import fanin` offers to programs."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fanin

ROOT = Path(__file__).parents[2]
PLACES = {
    "AbortedError": "fanin.workers.job.calls",
    "CollectiveError": "fanin.workers.collective",
    "ErrorFeedback": "fanin.workers.values.compression",
    "JoinError": "fanin.workers.job.membership",
    "Rounded": "fanin.workers.values.compression",
    "TopK": "fanin.workers.values.compression",
    "run": "fanin.experiments.notebook",
}


def test_each_name_is_that_of_the_module_that_defines_it() -> None:
    assert sorted({"init", *PLACES}) == fanin.__all__
    for name, place in PLACES.items():
        assert getattr(fanin, name) is getattr(importlib.import_module(place), name)


def test_names_are_listed_before_they_are_imported() -> None:
    script = "import fanin, sys; print(*dir(fanin)); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(fanin.__all__) <= set(done.stdout.split())
    assert not {"fanin.workers", "fanin.experiments", "numpy"} & set(done.stderr.split())


def test_other_names_are_refused_as_by_any_module() -> None:
    with pytest.raises(AttributeError, match=r"module 'fanin' has no attribute 'launch'"):
        fanin.launch  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError):
        from fanin import nothing  # type: ignore[attr-defined] # noqa: F401


def test_the_reference_lists_all_names() -> None:
    text = (ROOT / "docs" / "reference" / "python-api.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, re.M)
    assert sorted(name for row in rows for name in re.findall(r"\w+", row)) == fanin.__all__
