"""The same thing has the same option in every verb."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fanin.cli import VERBS, app, load

# Verbs that look into a network that is up or change it: which one is meant, where there are several.
ON_A_NETWORK = {
    "diagnose",
    "bench",
    "shell",
    "exec",
    "jobs",
    "launch",
    "link",
    "allreduce",
    "tables",
    "counters",
    "top",
    "why",
    "packet",
    "trace",
}


def options() -> Iterator[tuple[str, Any]]:
    """Each verb and each of its options."""
    for name in VERBS:
        command = load(name)
        for each in (command, *getattr(command, "commands", {}).values()):
            for parameter in each.params:
                if parameter.param_type_name == "option":
                    yield name, parameter


def test_a_value_has_one_option_in_all_verbs() -> None:
    spelled: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, option in options():
        spelled[option.name].add((*option.opts, *option.secondary_opts))
    assert {name: ways for name, ways in spelled.items() if len(ways) > 1} == {}


def test_which_network_is_meant_is_said_alike() -> None:
    assert {verb for verb, option in options() if "--network" in option.opts} == ON_A_NETWORK
    assert not [verb for verb, option in options() if "--run" in option.opts]


def test_an_option_with_several_values_may_be_given_several_times() -> None:
    """Not only its last one counts."""
    several = {(verb, option.name) for verb, option in options() if "," in (option.metavar or "")}
    assert {("bench", "sizes"), ("cost", "gpus"), ("plot", "by"), ("run", "changes")} <= several
    assert several == {(verb, option.name) for verb, option in options() if option.multiple} & several


@pytest.mark.parametrize("text", ["", ",", "256,,512", "256,"])
def test_an_empty_value_in_a_list_is_refused_and_the_option_named(text: str) -> None:
    done = CliRunner().invoke(app, ["cost", "--model", "7B", "--gpus", text], env={"COLUMNS": "400"})
    assert done.exit_code == 2
    assert f"--gpus: '{text}' has an empty value" in done.stderr


@pytest.mark.few(0)
@pytest.mark.slow
def test_a_benchmark_has_the_values_of_all_its_options(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    def bench(workers: list[int], sizes: list[int], *_: object, beside: list[str], **__: object) -> list[Any]:
        asked.extend((workers, sizes, beside))
        return []

    monkeypatch.setattr("fanin.verbs.benchmarks.allreduce.enter", lambda: None)
    monkeypatch.setattr("fanin.assurance.bench.allreduce.bench", bench)
    options = "--workers 8 --workers 2,4 --sizes '1 KiB' --sizes '1 MB, 64 KiB' --load loop --load nothing"
    argv = ["bench", "allreduce", *shlex.split(options), "--results", str(tmp_path)]
    done = CliRunner().invoke(app, argv)
    assert done.exit_code == 0, done.output
    assert asked == [[8, 2, 4], [1024, 65536, 1_000_000], ["loop", "nothing"]]


@pytest.mark.parametrize(
    "command",
    [
        "compile PROGRAM -o",
        "compile PROGRAM --p4info",
        "compile PROGRAM --c",
        "animate scenario:small-virtual -o",
        "plot . -o",
        "import PROGRAM -o",
        "up --log",
        "lab grade . --lab 1 --csv",
    ],
)
def test_a_folder_is_not_taken_for_a_file_to_write(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path() forgets the slash at the end, so that a file of this name was written."""
    monkeypatch.chdir(tmp_path)
    Path("program.p4").touch()
    done = CliRunner().invoke(app, [*command.replace("PROGRAM", "program.p4").split(), "out/"])
    assert done.exit_code == 2
    assert "out/ is a folder; name a file, such as out/NAME" in " ".join(
        done.output.replace("│", " ").split()
    )
    assert [each.name for each in tmp_path.iterdir()] == ["program.p4"]
