"""Options in docs/reference/bmv2-options.md are the same as in p4c and BMv2, without effect, or refused, as it says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fanin.bmv2_commands import p4c
from fanin.bmv2_commands.simple_switch import switch_arguments
from fanin.p4switch.options import UsageError, parse

PAGE = Path(__file__).parents[2] / "docs/reference/bmv2-options.md"
PROGRAM = Path(__file__).with_name("course.p4")


def rows(heading: str, commands: tuple[str, str], last: str) -> Iterator[tuple[str, str, str]]:
    """Yield command, option and kind of each row below a heading; `last` stands for the last command."""
    part = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for option, of, kind in re.findall(r"^\| `(-[^`]*)` \| (\S+) \| ([a-z ]+) \|", part, re.MULTILINE):
        for command in commands if of == "\\*" else [commands[-1] if of == last else of.strip("`")]:
            yield command, option, kind


P4C = list(rows("p4c and p4c-bm2-ss", ("p4c", "p4c-bm2-ss"), "p4c-bm2-ss"))
SWITCH = list(rows("simple_switch and simple_switch_grpc", ("simple_switch", "simple_switch_grpc"), "grpc"))


def test_the_tables_are_read():
    assert len(P4C) > 100
    assert len(SWITCH) > 60


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same", "without effect", "refused"])
def test_options_of_the_compiler(kind, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("prog.p4").write_text(PROGRAM.read_text())
    found = {}
    wanted = [(command, option) for command, option, here in P4C if here == kind]
    for command, option in wanted:
        try:
            status = p4c.main(command, [*shlex.split(option, comments=False), "prog.p4"])
        except SystemExit as ended:
            status = ended.code
        found[command, option] = outcome(command, option, status, capfd.readouterr().err)
    assert found == dict.fromkeys(wanted, kind)


@pytest.mark.parametrize(("command", "option", "kind"), SWITCH)
def test_options_of_the_switch(command, option, kind):
    words = shlex.split(option)
    program = [] if "--no-p4" in words else ["prog.json"]
    try:
        options = parse(switch_arguments(command, [*program, *words]), command)
        status, said = 0, "".join(f"{command}: warning: {warning}" for warning in options.warnings)
    except UsageError as error:
        status, said = 1, f"{command}: {error}"
    except SystemExit as ended:  # help and versions
        status, said = ended.code, ""
    assert outcome(command, option, status, said) == kind


def outcome(command: str, option: str, status: object, said: str) -> str:
    """Return what became of an option, by the exit status and the messages; if it is none of the three, all of it."""
    name = option.removeprefix("-- ").split(" ")[0].partition("=")[0]
    if name == "-Werror":
        name = "-W"
    if status == 0 and f"{command}: warning: {name} has no effect" in said:
        return "without effect"
    if status == 0 and f"{command}: " not in said:
        return "same"
    if status == 1 and f"{command}: {name} is not supported: " in said:
        return "refused"
    return f"{status}: {said}"
