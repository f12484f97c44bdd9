"""No file that a verb is given makes it fail with a traceback: a few lines name the file, and the status is 1 or 2."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fanin.cli import app
from fanin.testbed import sandbox
from fanin.testbed.mininet_net import MininetNetwork

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "scenarios/small-virtual.toml"
PROGRAM = ROOT / "tests/p4switch/stf/defaults.p4"
PACKET = "00" * 60
MANY_LINES = 30


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Verbs stay in this process, and in a folder of their own, where none of them finds a network that is up."""
    monkeypatch.setattr(sandbox, "_inside", True)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def build(*_: object) -> None:
        raise AssertionError("a network is built, in this machine's own namespaces")

    monkeypatch.setattr(MininetNetwork, "__init__", build)


# -- a file of the wrong kind ---------------------------------------------------------------------------------------


def folder(path: Path) -> None:
    path.mkdir()


def missing(path: Path) -> None:
    assert not path.exists()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 4)


def unreadable(path: Path) -> None:
    path.symlink_to("/proc/self/mem")  # of which reading fails, for root too


def another_json(path: Path) -> None:
    path.write_text('{"rows": [{"a": 1}], "tables": [NaN, -1, 1e999]}')


def a_list(path: Path) -> None:
    path.write_text("[1, 2]")


def deep(path: Path) -> None:
    path.write_text("[" * 100_000)


def another_toml(path: Path) -> None:
    path.write_text('[project]\nname = "other"\nworkers = nan\nloss = -1\n')


KINDS = (folder, missing, empty, binary, unreadable, another_json, a_list, deep, another_toml)

# What is read at FILE, and the suffixes that it is read by.
READERS = {
    "run FILE": (".toml",),
    "sweep FILE --dry-run": (".toml",),
    f"sweep {SCENARIO} --dry-run --set topology=FILE": (".toml",),
    f"run {SCENARIO} --program FILE": (".p4",),
    f"run {SCENARIO} --controller FILE": (".py",),
    f"run {SCENARIO} --worker FILE": (".py",),
    "rerun FILE": (".json", ".jsonl", ".parquet"),
    "plot FILE --x loss": (".json", ".jsonl", ".parquet", ".csv"),
    "compile FILE": (".p4",),
    "diff FILE": (".p4",),
    f"diff {PROGRAM} --packets FILE": (".pcap",),
    f"diff {PROGRAM} --entries FILE": (".json",),
    "up --topology FILE": (".toml",),
    "up --program FILE": (".p4",),
    "up --controller FILE": (".py",),
    "demo --topology FILE": (".toml",),
    "demo --worker FILE": (".py",),
    f"stf FILE {PROGRAM.with_suffix('.stf')}": (".p4", ".json"),
    f"stf {PROGRAM} FILE": (".stf",),
    f"trace FILE --packet {PACKET}": (".p4", ".json"),
    f"trace {PROGRAM} --read FILE": (".pcap",),
    f"trace {PROGRAM} --packet {PACKET} --entries FILE": (".json",),
    "fuzz --repeat FILE": (".json",),
    "soak --seeds 1 --program FILE": (".p4",),
    "soak --seeds 1 --controller FILE": (".py",),
}


def cases() -> Iterator[tuple[str, str, Callable[[Path], None]]]:
    for command, suffixes in READERS.items():
        for suffix in suffixes:
            for kind in KINDS:
                if (kind, suffix) == (empty, ".stf"):  # a test that asks for nothing, and passes
                    continue
                yield command, suffix, kind


@pytest.mark.slow
@pytest.mark.few(100)
@pytest.mark.parametrize(("command", "suffix", "make"), list(cases()))
def test_a_file_of_the_wrong_kind_is_named(
    command: str, suffix: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / f"given{suffix}"
    make(path)
    refused(command.replace("FILE", str(path)), path)


def refused(command: str, path: Path) -> None:
    done = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert done.exit_code in (1, 2), done.output
    assert isinstance(done.exception, SystemExit), repr(done.exception)
    assert "Traceback" not in done.stderr
    assert 0 < len(done.stderr.splitlines()) < MANY_LINES
    assert path.name in done.stderr or str(path.resolve()) in done.stderr


def test_a_folder_is_no_page(tmp_path: Path) -> None:
    folder(tmp_path / "given")
    refused("report results -o given", tmp_path / "given")


@pytest.mark.parametrize("change", ["=3", "loss=", "loss"])
def test_a_change_has_a_key_and_a_value(change: str) -> None:
    done = CliRunner().invoke(app, ["run", str(SCENARIO), "--set", change])
    assert done.exit_code == 2
    assert f"--set {change}: write KEY=VALUE" in done.stderr


@pytest.mark.parametrize("make", [folder, missing])
def test_what_is_no_script_is_not_launched(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "given.py")
    refused("launch given.py", tmp_path / "given.py")


@pytest.mark.parametrize(
    "command",
    [
        f"run {SCENARIO} --results FILE",
        f"run {SCENARIO} --results FILE/below",
        f"compile {PROGRAM} -o FILE/program.json",
        "new FILE/mine",
        "fuzz --minutes 0 --results FILE",
        "soak --seeds 1 --results FILE",
        "soak --seeds 1 --results FILE/below",
        "up --logs FILE",
        "demo --results FILE",
        "demo --pcap FILE",
        "validate --results FILE",
        "bench virtual --results FILE",
        "bench switch --results FILE",
        "bench allreduce --results FILE",
        "bench calls --results FILE",
        "shims FILE",
        "course FILE",
        "up --pcap FILE",
    ],
)
@pytest.mark.slow
def test_a_file_where_a_folder_is_to_be_is_named(command: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text("mine")
    refused(command.replace("FILE", str(path)), path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "command",
    [
        f"run {SCENARIO} --results FILE",
        f"compile {PROGRAM} -o FILE/program.json",
        "new FILE",
        "shims FILE",
        "course FILE",
        "fuzz --minutes 0 --results FILE",
        "soak --seeds 1 --results FILE",
        "up --logs FILE",
        "up --pcap FILE",
        "demo --results FILE",
        "demo --pcap FILE",
        "validate --results FILE",
        "bench virtual --results FILE",
    ],
)
@pytest.mark.slow
def test_a_folder_that_cannot_be_created_is_named(command: str) -> None:
    refused(command.replace("FILE", "/proc/fanin-results"), Path("/proc/fanin-results"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        *(
            f"sweep {SCENARIO} --dry-run --set {change}"
            for change in (
                "loss=nan",
                "loss=-1",
                "loss=1e999",
                "workers=0",
                "workers=1000000000",
                "workers=2.5",
                "size=-1",
                "size=1e999",
                "size='1e999 MB'",
                "size='1e99999999999999999999 MB'",
                "size='nan MB'",
                "repetitions=0",
                "repetitions=nan",
                "delay=nan",
                "delay=-1",
                "delay=inf",
                "seed=-1",
                "algorithm=rings",
                "workers",
                "workers=",
                "worker=nowhere.py",
                "topology.leaf_spine.rate=nan",
                "topology.leaf_spine.rate=-1",
                "topology.leaf_spine.leaves=1000000000",
                "topology.leaf_spine.hosts_per_leaf=1000000000",
                "topology.leaf_spine.spines=-1",
            )
        ),
        *(
            f"up {options}"
            for options in (
                "--workers 3",
                "--workers -2",
                "--workers 1000000000 --leaves 1",
                "--leaves 1000000000 --workers 1000000000",
                "--rate nan",
                "--rate=-1",
                "--rate 1e999",
                "--rate 0",
                "--spines 0",
                "--switch bmv3",
            )
        ),
        "demo --loss nan",
        "demo --loss -1%",
        "demo --rate nan",
        f"trace {PROGRAM} --packet zz",
        f"trace {PROGRAM} --packet {PACKET} --port 512",
        f"trace {PROGRAM} --packet {PACKET} --filter port",
        f"compile {PROGRAM} --dump-after nothing",
        "allreduce --sizes nan",
        "allreduce --sizes=-1",
        "allreduce --sizes '1e999 MB'",
        "allreduce --repetitions 0",
        "fuzz --minutes nan",
        "soak --seeds 0",
        "bench allreduce --workers x",
        "bench allreduce --workers=-4",
        "bench allreduce --sizes nan",
        "bench allreduce --load ''",
        "bench allreduce --load music",
        "bench calls --workers 1",
        "bench calls --sizes nan",
        "bench allreduce --sizes ''",
        "launch --workers 0 true",
        'launch --up "\'" true',
        "launch",
        "launch -n 3 --per-host 2 train.py",
        "launch --min-workers 1 --per-host 2 train.py",
        "tables leaf1 --network x",
        "packet leaf1",
        "packet leaf1 --hex 00 --layers 'Ether()'",
        "link leaf1 --set loss=1%",
        "link leaf1 h1 --set delay=5",
        "link leaf1 h1 --set loss",
        "new Capitals",
        "cost --model 7B --algorithm ''",
        "plot results --x loss --by size,",
        "link leaf1 h1 --set ''",
        f"compile {PROGRAM} -o ''",
        f"compile {PROGRAM} --p4info ''",
        f"compile {PROGRAM} --c .",
        "report results -o ''",
        "plot results --x loss -o ''",
    ],
)
def test_a_value_that_cannot_be_is_refused(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "400", "NO_COLOR": "1"})
    assert (done.exit_code, type(done.exception)) == (2, SystemExit), (done.output, repr(done.exception))
    assert 0 < len(done.stderr.splitlines()) < MANY_LINES
    assert not [path for path in tmp_path.iterdir() if path.name != "fanin"]


@pytest.mark.parametrize(
    "command",
    ["lab start NAME", "rerun NAME", "format NAME", "compare NAME .", "report . -o NAME"],
)
def test_a_name_that_is_too_long_for_a_file_is_named(command: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"rows": []}')
    refused(command.replace("NAME", "9" * 300), Path("9" * 300))


def test_a_log_that_cannot_be_written_is_refused_before_a_network_is_built(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = CliRunner().invoke(app, ["up", "--log", str(tmp_path / "file" / "log.jsonl")])
    assert done.exit_code == 2
    assert done.stderr.startswith("fanin up: ")
    assert "file" in done.stderr


@pytest.mark.parametrize("words", [["diagnose"], ["lab", "check"], ["run"]], ids=" ".join)
@pytest.mark.parametrize("name", ["a" * 5000, "loop"], ids=["a name that is too long", "a link to itself"])
def test_names_that_no_file_can_have_are_named(
    words: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from fanin import cli

    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr("sys.argv", ["fanin", *words, name])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert name[:20] in str(ended.value.code) + capsys.readouterr().err
