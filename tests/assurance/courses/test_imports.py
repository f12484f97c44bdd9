"""Which imports of a course are tried, and what becomes of them."""

from __future__ import annotations

import sys
from pathlib import Path

from fanin.assurance.courses.imports import failures, foreign_imports, imports


def test_every_form_of_import_is_found() -> None:
    text = "import a, b.c as d\nfrom e import f, g as h\nfrom . import i\nfrom .j import k\ndef l():\n    import m\n"
    assert sorted(imports(text)) == [("a", ""), ("b.c", ""), ("e", "f"), ("e", "g"), ("m", "")]


def test_python_2_is_understood() -> None:
    assert list(imports('import a, b as c\nfrom d import *\nprint "x"\n')) == [
        ("a", ""),
        ("b", ""),
        ("d", "*"),
    ]


def test_modules_of_the_checkout_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "utils").mkdir()
    (tmp_path / "utils/__init__.py").touch()
    (tmp_path / "helper.py").write_text("import json")
    (tmp_path / "script").write_text("#!/usr/bin/env python3\nimport helper, utils.x, scapy.all")
    (tmp_path / "text").write_text("import nothing")
    assert [wanted for wanted, _ in foreign_imports(tmp_path)] == [("json", ""), ("scapy.all", "")]


def test_errors_are_reported_in_order() -> None:
    wanted = [("json", "loads"), ("nowhere", ""), ("json", "nothing"), ("json", "decoder"), ("json", "*")]
    found = failures(Path(sys.executable), wanted)
    assert [error.partition(":")[0] for error in found] == [
        "",
        "ModuleNotFoundError",
        "ModuleNotFoundError",
        "",
        "",
    ]
