"""The programs that the playground offers."""

from __future__ import annotations

from pathlib import Path

from fanin.browser.playground.presets import own_program, presets
from fanin.classroom.manifest import find_lab
from fanin.classroom.work_folder import start
from fanin.p4compiler import compile_file
from fanin.p4switch.stf.run import run_stf


def test_every_program_has_packets() -> None:
    found = [*presets()]
    assert len(found) > 10
    assert all("packet " in preset.stf() for preset in found)


def test_the_page_begins_with_a_switch_that_adds_up() -> None:
    first = next(presets())
    assert first.title == "Adding up"
    assert "\nexpect 1 03 0000000b 00000016 00000021 0000002c $\n" in first.stf()
    assert run_stf(compile_file(first.main).device_config(), first.stf()).differences == []


def test_a_students_program_of_a_lab_has_the_packets_of_the_lab(tmp_path: Path) -> None:
    start(find_lab("forwarding"), tmp_path / "mine", "forwarding")
    (lab,) = (preset for preset in presets() if preset.name == "lab-01-forwarding")
    own = own_program(tmp_path / "mine" / "forwarding.p4", None)
    assert own.stf() == lab.stf()


def test_a_test_of_the_same_name_is_preferred_and_another_program_has_none(tmp_path: Path) -> None:
    program = tmp_path / "mine.p4"
    program.write_text("")
    assert own_program(program, None).stf() == ""
    program.with_suffix(".stf").write_text("packet 1 00")
    assert own_program(program, None).stf() == "packet 1 00"
    (tmp_path / "other.stf").write_text("packet 2 00")
    assert own_program(program, tmp_path / "other.stf").stf() == "packet 2 00"
