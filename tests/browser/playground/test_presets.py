"""The programs that the playground offers."""

from __future__ import annotations

from pathlib import Path

from fanin.browser.playground.presets import own_program, presets
from fanin.classroom.manifest import find_lab
from fanin.classroom.work_folder import start


def test_every_program_has_packets() -> None:
    found = [*presets()]
    assert len(found) > 10
    assert all("packet " in preset.stf() for preset in found)


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
