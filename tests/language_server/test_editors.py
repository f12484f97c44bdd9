"""The files for editors: the extension for VS Code, and Neovim with its snippet."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from fanin.p4compiler.parse.expressions import RESERVED
from fanin.testbed.patience import setting

ROOT = Path(__file__).parents[2]
VSCODE = ROOT / "editors" / "vscode"
NVIM = shutil.which("nvim")
GRAMMAR_TEST = VSCODE / "node_modules" / ".bin" / "vscode-tmgrammar-test"


def test_the_extension_names_files_that_exist() -> None:
    package = json.loads((VSCODE / "package.json").read_text())
    assert package["version"] == version("fanin")
    named = [package["main"], *(g["path"] for g in package["contributes"]["grammars"])]
    named += [language["configuration"] for language in package["contributes"]["languages"]]
    assert all((VSCODE / name).is_file() for name in named)
    json.loads((VSCODE / "language-configuration.json").read_text())


def test_the_grammar_knows_all_reserved_words() -> None:
    grammar = json.loads((VSCODE / "syntaxes" / "p4.tmLanguage.json").read_text())
    words = set(re.findall(r"\w+", json.dumps(grammar["repository"]["keywords"])))
    assert words >= RESERVED - {"_"}


@pytest.mark.skipif(not GRAMMAR_TEST.exists(), reason="npm ci has not been run in editors/vscode")
def test_colours() -> None:
    done = subprocess.run(
        [GRAMMAR_TEST, "tests/grammar.p4"], cwd=VSCODE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


SCRIPT = """
vim.cmd("edit x.p4")
local function wait(ready) assert(vim.wait(60000, ready, 20), "nothing happened") end
wait(function() return #vim.diagnostic.get(0) > 0 end)
local said = { vim.bo.filetype, vim.diagnostic.get(0)[1].message }
local place = { textDocument = { uri = vim.uri_from_bufnr(0) }, position = { line = LINE, character = 21 } }
for _, answer in pairs(vim.lsp.buf_request_sync(0, "textDocument/hover", place, 60000)) do
  table.insert(said, answer.result.contents.value)
end
vim.cmd("%s/INSIED/INSIDE/")
vim.cmd("%s/const bit<9> OUTSIDE/const  bit<9>OUTSIDE/")
wait(function() return #vim.diagnostic.get(0) == 0 end)
if vim.lsp.buf.format then vim.lsp.buf.format() else vim.lsp.buf.formatting_sync() end
wait(function() return vim.fn.search("const bit<9> OUTSIDE", "w") > 0 end)
vim.fn.writefile(vim.split(table.concat(said, "\\n"), "\\n"), "said.txt")
vim.cmd("qa!")
"""


@pytest.mark.slow
@pytest.mark.skipif(NVIM is None, reason="Neovim is not installed")
def test_neovim(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "own-program" / "firewall.p4").read_text()
    line = next(n for n, each in enumerate(text.split("\n")) if "egress_spec = INSIDE" in each)
    (tmp_path / "x.p4").write_text(text.replace("egress_spec = INSIDE", "egress_spec = INSIED"))
    (tmp_path / "script.lua").write_text(SCRIPT.replace("LINE", str(line)))
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "fanin").write_text(f'#!/bin/sh\nexec {sys.executable} -m fanin "$@"\n')
    (bin_ / "fanin").chmod(0o755)
    places = {f"XDG_{kind}_HOME": str(tmp_path / kind) for kind in ("CONFIG", "STATE", "CACHE", "DATA")}
    done = subprocess.run(
        [str(NVIM), "--headless", "-u", ROOT / "editors" / "neovim" / "p4.lua", "-c", "luafile script.lua"],
        cwd=tmp_path,
        env=os.environ | places | {"PATH": f"{bin_}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180 * setting(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said.txt").read_text()
    assert said.startswith("p4\n")
    assert "there is no name 'INSIED'" in said
    assert "bit<9> standard_metadata_t.egress_spec" in said
