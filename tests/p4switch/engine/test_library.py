"""The runtime and programs, compiled and kept."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fanin.native.shared import SharedError
from fanin.p4compiler import compile_file, compile_once
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine import library
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.engine.library import PACKAGE, TRANSLATION

PROGRAM = Path(__file__).parents[1] / "programs" / "forwarder.p4"


def test_a_program_in_another_folder_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "fanin.p4"
        path.write_text('#include "program.p4"\n')
        (tmp_path / folder / "program.p4").write_text(PROGRAM.read_text())
        Engine.load(json.dumps(compile_file(path).json).encode())
    assert len(list((tmp_path / "fanin").glob("program-*.so"))) == 1


def test_whatever_decides_how_a_program_is_translated_compiles_anew() -> None:
    """Else the cache would go on with what an older translation has made."""
    loaded = """
import sys, fanin.p4switch.codegen.translate, fanin.p4switch.reader.read
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("fanin.p4switch")), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    needed = {path for path in map(Path, done.stdout.split()) if path.name != "__init__.py"}
    counted = {path for pattern in TRANSLATION for path in PACKAGE.glob(pattern)}
    assert needed <= counted


def test_a_struct_that_c_has_another_idea_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = [library.Drops._fields_[i] for i in (1, 0, 2, 3)]
    monkeypatch.setattr(library, "Drops", type("Drops", (ctypes.Structure,), {"_fields_": swapped}))
    with pytest.raises(
        SharedError, match=r"^struct drops\.too_long: 8 bytes at 0 in C, 8 bytes at 8 in Python$"
    ):
        library.runtime.__wrapped__()


def test_a_number_that_c_has_another_idea_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "METER_WORDS", 17)
    with pytest.raises(SharedError, match=r"^METER_WORDS: 18 in C, 17 in Python$"):
        library.runtime.__wrapped__()


def test_an_entry_of_a_program_that_does_not_fit_its_table_is_refused_with_the_program() -> None:
    document = json.loads(compile_once(Path(__file__).parents[1] / "stf" / "entries.p4").device_config())
    [pipeline] = (p for p in document["pipelines"] if p["name"] == "ingress")
    [table] = (t for t in pipeline["tables"] if t["name"] == "I.range_table")
    table["entries"][0]["match_key"][0]["end"] = "0x10000"
    with pytest.raises(
        ProgramError, match=r"table I\.range_table: hdr\.h\.key: 65536 does not fit into 8 bits"
    ):
        Engine.load(json.dumps(document).encode())


@pytest.mark.slow
def test_a_switch_that_processes_packet_after_packet_does_without_numpy(tmp_path: Path) -> None:
    """It would take as long to load as all of the switch's own modules, in each process of a network."""
    config = tmp_path / "config"
    config.write_bytes(compile_once(PROGRAM).device_config())
    script = """
import sys, fanin.p4switch.__main__, fanin.p4switch.p4runtime.device, fanin.p4switch.p4runtime.server
import fanin.p4switch.trace.stream
from pathlib import Path
from fanin.p4switch.engine.engine import Engine
Engine.load(Path(sys.argv[1]).read_bytes()).process(1, bytes(64))
print("numpy" in sys.modules)
"""
    command = [sys.executable, "-c", script, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
