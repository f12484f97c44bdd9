"""Every verb is in the list, and costs nothing until it is called."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from pkgutil import resolve_name

import pytest
from typer import Context, Exit, Typer
from typer.exceptions import TyperException
from typer.main import get_command
from typer.testing import CliRunner

from fanin.cli import VERBS, app, load
from fanin.verbs.new import TEMPLATES
from tests.docs.commands import examples, helps

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_the_list_says_what_the_verb_says_of_itself(name: str) -> None:
    found = resolve_name(f"fanin.verbs.{VERBS[name].place}")
    help = found.info.help if isinstance(found, Typer) else inspect.getdoc(found)
    assert help
    assert VERBS[name].summary == help.split("\n\n")[0].replace("\n", " ")
    shown = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert VERBS[name].summary in shown.stdout


@pytest.mark.parametrize("name", VERBS)
def test_a_summary_is_short(name: str) -> None:
    assert len(VERBS[name].summary) <= 60
    for below in getattr(load(name), "commands", {}).values():
        assert len(below.help.split("\n\n")[0]) <= 60, f"{name} {below.name}"


@pytest.mark.parametrize("name", VERBS)
def test_an_option_states_its_default_once(name: str) -> None:
    verb = load(name)
    for command in (verb, *getattr(verb, "commands", {}).values()):
        for option in command.params:
            shown = option.get_help_record(Context(command)) or ("", "")
            assert shown[1].lower().count("default") <= 1, f"{name} {option.opts}"


def test_the_list_has_a_panel_for_each_kind_of_verb_and_a_line_for_each_verb_in_80_columns() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    panels = dict.fromkeys(verb.panel for verb in VERBS.values())
    assert re.findall(r"^╭─ (\w+) ─", shown, re.M) == ["Options", *panels]
    lines = [re.sub(r"^│ +| +│$", "", line) for line in shown.splitlines() if line.startswith("│")]
    options = [line for line in lines if line.startswith("--")]
    verbs = [line.split(maxsplit=1) for line in lines if line not in options]
    assert [(name, summary) for name, summary in verbs] == [
        (name, verb.summary) for name, verb in VERBS.items()
    ]
    assert max(map(len, shown.splitlines())) == 80


def test_without_a_verb_the_next_steps_are_printed() -> None:
    done = CliRunner().invoke(app, [])
    assert done.exit_code == 2
    for words in commands(done.stdout):
        parse(words)
    assert [words[0] for words in commands(done.stdout)] == ["doctor", "demo", "lesson"]
    assert "fanin --help" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", VERBS)
def test_help_ends_with_two_examples_in_lines_of_their_own(name: str) -> None:
    for words, shown in helps(name):
        assert len(shown) == 2, words
        assert all(example.startswith(("fanin ", f"fanin {words} ")) for example in shown)
        help = CliRunner().invoke(app, [*words.split(), "--help"], env={"COLUMNS": "80"}).stdout
        block = ["Examples:", *(f"  {example}" for example in shown)]
        assert "\n".join(f" {line:78} " for line in block) in help


@pytest.mark.slow
def test_a_default_is_shown_by_the_tool_or_in_the_phrase() -> None:
    for name in VERBS:
        assert "[default: (" not in CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "200"}).stdout


@pytest.mark.slow
def test_files_are_utf_8_in_any_locale() -> None:
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    script = "from fanin.cli import main; main()"
    listed = [sys.executable, "-c", script, "lab", "list"]
    done = subprocess.run(listed, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "01-forwarding" in done.stdout


def test_help_imports_no_verb() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from fanin.cli import app; "
        "print(CliRunner().invoke(app, ['--help']).output); print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert all(name in shown.stdout for name in VERBS)
    assert not {"fanin.verbs", "numpy", "pydantic", "fanin.p4compiler", "fanin.p4switch"} & set(
        shown.stderr.split()
    )


def test_the_list_of_commands_imports_no_large_library() -> None:
    script = "import sys; from fanin.cli import main; sys.argv = ['fanin', '--help']; main()"
    done = subprocess.run([sys.executable, "-v", "-c", script], capture_output=True, text=True, check=True)
    imported = set(re.findall(r"^import '([\w.]+)'", done.stderr, re.M))
    assert "typer" in imported
    large = ("numpy", "grpc", "torch", "matplotlib", "pydantic", "markdown_it", "pygments", "pyarrow")
    assert not {module for module in imported if module.split(".")[0] in large}
    assert len(imported) < 350


# What runs things, and the largest libraries: none of it is needed to list options.
COSTLY = {
    *(
        "fanin.controller",
        "fanin.workers.api",
        "fanin.p4compiler",
        "fanin.p4switch",
        "fanin.native.toolchain",
    ),
    *(
        "fanin.experiments.live",
        "fanin.experiments.virtual",
        "fanin.experiments.results",
        "fanin.experiments.scenario.settings",
    ),
    *("fanin.topologies.model", "fanin.topologies.link", "fanin.simulator", "fanin.testbed.mininet_net"),
    *("numpy", "grpc", "google.protobuf", "scapy", "matplotlib", "pyarrow"),
}


@pytest.mark.slow
def test_the_help_of_a_verb_imports_nothing_of_what_the_verb_does() -> None:
    script = (
        "import sys; from typer.testing import CliRunner; from fanin.cli import VERBS, app\n"
        "for verb in VERBS:\n"
        "    assert CliRunner().invoke(app, [verb, '--help']).exit_code == 0\n"
        f"    for module in sorted({COSTLY} & sys.modules.keys()):\n"
        "        print(verb, 'or one before it imports', module)\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == ""


def test_a_verb_that_is_none_is_refused_and_what_is_like_it_named() -> None:
    refused = CliRunner().invoke(app, ["sweeps"])
    assert refused.exit_code == 2
    assert "No such command 'sweeps'. Did you mean 'sweep'?" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("fanin", "tr"), ["trace"]),
        (("fanin", "up", "--le"), ["--leaves"]),
        (("fanin", "bench", "allreduce", "--si"), ["--sizes"]),
        (("fanin", "compile", "--p4"), ["--p4info"]),
    ],
)
def test_the_shell_completes_verbs_and_their_options(words: tuple[str, ...], wanted: list[str]) -> None:
    environment = {
        "_FANIN_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from fanin.cli import main; sys.argv[:] = ['fanin']; main()"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=True,
    )
    assert done.stdout.split() == wanted


@pytest.mark.parametrize("name", VERBS)
def test_no_help_is_taken_for_markup(name: str) -> None:
    command = load(name)
    for each in (command, *getattr(command, "commands", {}).values()):
        for parameter in each.params:
            assert "[" not in (getattr(parameter, "help", None) or ""), parameter.name


def commands(text: str) -> Iterator[list[str]]:
    """The command lines of fanin in a document or help text: in lines of their own, and in backquotes."""
    lines = re.findall(
        r"^ {2,}(?:\$ )?fanin (?!\w+:)(\S.*?)(?:  .*)?$", text, flags=re.M
    )  # but for its messages
    for line in (*lines, *re.findall(r"`fanin (?!\w+:)([^`]+)`", text)):
        for part in line.split(" & "):
            yield [
                word
                for word in shlex.split(part.removeprefix("fanin "), comments=True)
                if word not in ("…", "&")
            ]


def documents() -> Iterator[tuple[str, list[str]]]:
    """Where, and the words behind `fanin`."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for words in commands(path.read_text()):
            yield path.name, words
    for name in VERBS:
        for example in examples(name):
            yield f"help of {name}", shlex.split(example)[1:]


@pytest.mark.slow
def test_commands_in_the_documentation_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("fanin.cli.load", cache(load))
    found = {tuple(words): where for where, words in documents()}
    assert len(found) > 50
    wrong = {}
    for typed, where in found.items():
        # What stands for a file, such as SCENARIO.toml, is not there; for a folder, FOLDER.
        words = [str(ROOT) if word == "FOLDER" else word for word in typed]
        words = [
            str(ROOT / "README.md") if re.match(r"[A-Z]{2,}|other\.py|veth0_in\.pcap", word) else word
            for word in words
        ]
        # Those of docs/how-to/own.md are in the folder that `fanin new` makes of these.
        words = [str(TEMPLATES / word) if (TEMPLATES / word).is_file() else word for word in words]
        try:
            parse(words)
        except TyperException as error:
            wrong[f"{where}: fanin {' '.join(words)}"] = str(error)
    assert not wrong


COMMAND = get_command(app)


def parse(words: list[str]) -> None:
    """Check that it is a command with its options, without running it."""
    command, rest = COMMAND, words
    with suppress(Exit):  # --help and the like
        while rest and hasattr(command, "resolve_command"):
            _, command, rest = command.resolve_command(command.make_context("fanin", list(rest)), rest)
        if rest:
            command.make_context(words[0], rest)


def test_a_command_with_an_option_that_there_is_not_cannot_be_typed() -> None:
    for words in (["up", "--worker-count", "2"], ["go"], ["demo", "extra"]):
        with pytest.raises(TyperException):
            parse(words)


def test_the_command_that_is_installed_is_this_one() -> None:
    script = Path(sysconfig.get_path("scripts"), "fanin")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert re.fullmatch(rf"fanin {version('fanin')}( \(commit [0-9a-f]{{12}}\+?\))?\n", done.stdout)


@pytest.mark.slow
def test_what_a_terminal_has_no_character_for_is_named(fanin) -> None:
    done = fanin("doctor", PYTHONIOENCODING="ascii")
    assert "Traceback" not in done.stderr
    assert r"\N{CHECK MARK} machine" in done.stdout


@pytest.mark.slow
def test_commands_seldom_look_for_garbage() -> None:
    """With Python's own threshold, it is looked for a hundred times while this command imports what it needs."""
    script = """
import gc, sys
from fanin.cli import main
before = sum(each["collections"] for each in gc.get_stats())
sys.argv = ["fanin", "run", "--schema"]
try:
    main()
finally:
    print(sum(each["collections"] for each in gc.get_stats()) - before, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stderr) < 20


@pytest.mark.slow
@pytest.mark.few(2)
@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("words", [("lesson", "list"), ("cost", "--help"), ("--version",)])
def test_where_there_is_no_room_for_what_is_printed_a_line_says_so(
    words: tuple[str, ...], buffered: bool
) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from fanin.cli import main; main()", *words],
            env=environment | ({} if buffered else {"PYTHONUNBUFFERED": "1"}),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "fanin: cannot write the output: No space left on device\n"


# A process of its own: whether a stream is closed, and what COLUMNS has, matters before anything is imported.
def started(shell: str, **environment: str) -> subprocess.CompletedProcess[str]:
    fanin = shlex.join([sys.executable, "-m", "fanin"])
    return subprocess.run(
        ["/bin/sh", "-c", shell.replace("fanin", fanin, 1)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error(closed: str) -> None:
    done = started(f"fanin --version {closed}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_what_is_printed_to_a_closed_stream_does_not_go_into_a_file(tmp_path: Path) -> None:
    program = shlex.quote(str(ROOT / "tests/p4switch/stf/defaults.p4"))
    done = started(f"fanin compile {program} -o {shlex.quote(str(tmp_path / 'out.json'))} >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.json").read_text().startswith("{")
    assert "wrote" not in (tmp_path / "out.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["99999999", "9" * 5000, "0", "²", "-1", "wide"])
def test_a_width_that_no_terminal_has_is_no_error(columns: str) -> None:
    done = started("fanin --help", COLUMNS=columns)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) < 10_000


@pytest.mark.slow
def test_an_environment_without_a_path_is_no_error() -> None:
    done = started("env -u PATH -u HOME -u TERM fanin --version")
    assert (done.returncode, done.stderr) == (0, "")
