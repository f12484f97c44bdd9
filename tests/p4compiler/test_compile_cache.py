"""Compiled programs in the user's cache: found again, made anew after any change, and never taken from strangers."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from threading import Thread

import pytest

from fanin.native.cache import LOOKED, libraries, remove_unused
from fanin.p4compiler import Compiled, CompileError, compile_once
from fanin.p4compiler import compile as compile_module
from fanin.p4compiler import compile_cache as kept
from fanin.p4compiler.compile import compile_file
from tests.p4compiler.conftest import source

WITH_INCLUDE = '#include "part.p4"\n' + source(apply="hdr.h.setValid(); hdr.h.a = PART;")


class Counted:
    """The compiler, counted."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, *args: object, **options: object) -> Compiled:
        self.times += 1
        return compile_file(*args, **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "fanin"


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counted = Counted()
    monkeypatch.setattr(compile_module, "compile_file", counted)
    return counted


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.p4"
    path.write_text(WITH_INCLUDE)
    (tmp_path / "part.p4").write_text("#define PART 1\n")
    return path


def assert_same(one: Compiled, other: Compiled) -> None:
    assert one.json == other.json
    assert one.device_config() == other.device_config()
    assert one.p4info == other.p4info
    assert list(map(str, one.warnings)) == list(map(str, other.warnings))


def entry(folder: Path) -> Path:
    (path,) = folder.glob("p4-*.compiled")
    return path


def test_it_is_compiled_once_and_the_same_is_found_again(compiler: Counted, program: Path) -> None:
    first, second = compile_once(program), compile_once(program)
    assert compiler.times == 1
    assert_same(first, second)
    assert_same(second, compile_file(program))


def test_warnings_are_kept_with_their_places(compiler: Counted, program: Path) -> None:
    program.write_text("#warning mind the gap\n" + WITH_INCLUDE)
    first, second = compile_once(program), compile_once(program)
    assert compiler.times == 1
    assert "mind the gap" in str(second.warnings[0])
    assert_same(first, second)


def change_program(program: Path) -> None:
    program.write_text(program.read_text().replace("hdr.h.a = PART", "hdr.h.a = PART + 1"))


def change_include(program: Path) -> None:
    program.with_name("part.p4").write_text("#define PART 2\n")


@pytest.mark.parametrize("change", [change_program, change_include])
def test_a_changed_file_is_compiled_anew(
    compiler: Counted, program: Path, change: Callable[[Path], None]
) -> None:
    compile_once(program)
    change(program)
    assert_same(compile_once(program), compile_file(program))
    assert compiler.times == 2


def test_a_file_that_is_now_found_earlier_is_noticed(
    compiler: Counted, program: Path, tmp_path: Path
) -> None:
    places = [tmp_path / "first", tmp_path / "second"]
    for place in places:
        place.mkdir()
    program.with_name("part.p4").rename(places[1] / "part.p4")
    compile_once(program, include_dirs=places)
    (places[0] / "part.p4").write_text("#define PART 3\n")
    assert_same(compile_once(program, include_dirs=places), compile_file(program, include_dirs=places))
    assert compiler.times == 2


def test_macros_count(compiler: Counted, program: Path) -> None:
    change_include(program)
    program.with_name("part.p4").write_text("")
    for value in ("1", "2", "1"):
        defines = {"PART": value}
        assert_same(compile_once(program, defines=defines), compile_file(program, defines=defines))
    assert compiler.times == 2


def test_another_folder_of_the_same_name_is_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        place = tmp_path / str(number)
        place.mkdir()
        (place / "program.p4").write_text(source(apply=f"hdr.h.a = {number};"))
        monkeypatch.chdir(place)
        assert_same(compile_once("program.p4"), compile_file("program.p4"))


def test_an_absolute_path_is_the_same_program_from_everywhere(
    compiler: Counted, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As p4src/fanin.p4 is, wherever `fanin` is called."""
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        found.append(compile_once(program, include_dirs=[tmp_path]))
    assert compiler.times == 1
    assert_same(*found)


def test_a_relative_include_folder_is_another_one_elsewhere(
    compiler: Counted, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.with_name("part.p4").unlink()
    for number in range(2):
        (tmp_path / str(number) / "parts").mkdir(parents=True)
        (tmp_path / str(number) / "parts" / "part.p4").write_text(f"#define PART {number}\n")
        monkeypatch.chdir(tmp_path / str(number))
        assert_same(
            compile_once(program, include_dirs=["parts"]), compile_file(program, include_dirs=["parts"])
        )
    assert compiler.times == 2


def test_another_compiler_compiles_anew(
    compiler: Counted, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_once(program)
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "phases.py").write_text("# another\n")
    monkeypatch.setattr(kept, "_SOURCES", tmp_path / "compiler")
    compile_once(program)
    assert compiler.times == 2


def test_errors_are_said_each_time_and_leave_nothing(folder: Path, program: Path) -> None:
    program.write_text("no program")
    for _ in range(2):
        with pytest.raises(CompileError):
            compile_once(program)
    assert not list(folder.iterdir())
    with pytest.raises(OSError, match="No such file"):
        compile_once(program.with_name("none.p4"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: content[:40] + bytes([content[40] ^ 1]) + content[41:],
        lambda _: b"",
        lambda _: pickle.dumps("something else"),
    ],
)
def test_what_is_damaged_is_made_anew(
    compiler: Counted, folder: Path, program: Path, damage: Callable[[bytes], bytes]
) -> None:
    compile_once(program)
    content = entry(folder).read_bytes()
    entry(folder).write_bytes(damage(content))
    assert_same(compile_once(program), compile_file(program))
    assert compiler.times == 2
    assert entry(folder).read_bytes()[32:] == content[32:]


class Evil:
    """Whatever it is unpickled into makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_nothing_is_read_from_or_written_to_a_folder_to_which_others_may_write(
    compiler: Counted, folder: Path, program: Path, tmp_path: Path, mode: int
) -> None:
    compile_once(program)
    body = pickle.dumps(Evil(tmp_path / "opened"))
    entry(folder).write_bytes(sha256(body).digest() + body)
    before = sorted(folder.iterdir())
    folder.chmod(mode)
    assert_same(compile_once(program), compile_file(program))
    assert compiler.times == 2
    assert not (tmp_path / "opened").exists()
    assert sorted(folder.iterdir()) == before


def test_without_a_cache_it_is_compiled(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert_same(compile_once(program), compile_file(program))


def test_what_came_through_a_pipe_is_not_kept(compiler: Counted, folder: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "program.p4"
    os.mkfifo(pipe)
    for number in range(2):
        text = source(apply=f"hdr.h.a = {number};")
        writer = Thread(target=pipe.write_text, args=(text,))
        writer.start()
        compiled = compile_once(pipe)
        writer.join()
        assert f"0x{number:02x}" in compiled.json_text()
    assert compiler.times == 2
    assert not folder.exists()


def test_they_are_bounded_with_the_libraries(folder: Path, program: Path) -> None:
    compile_once(program)
    (library,) = libraries(folder)
    assert library.bytes == entry(folder).stat().st_size > 0
    assert remove_unused(folder, keep=0, recent=0.0) == [library]
    assert [path.name for path in folder.iterdir()] == [LOOKED]


@pytest.mark.slow
def test_what_is_kept_is_read_without_the_compiler(tmp_path: Path) -> None:
    program = tmp_path / "program.p4"
    program.write_text(source(apply="hdr.h.setValid();"))
    script = (
        f"import sys, fanin.p4compiler; fanin.p4compiler.compile_once({str(program)!r}); "
        "print('fanin.p4compiler.phases' in sys.modules)"
    )
    said = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
        for _ in "12"
    ]
    assert said == ["True\n", "False\n"]


# Says when it asks for a lock, and when it compiles, for which it takes a line from standard input.
TELLING = """
import fcntl, sys
import fanin.p4compiler, fanin.p4compiler.compile as module

flock, compile_file = fcntl.flock, module.compile_file

def asking(*arguments):
    print("asks", flush=True)
    flock(*arguments)

def compiling(*arguments, **options):
    print("compiles", flush=True)
    sys.stdin.readline()
    return compile_file(*arguments, **options)

fcntl.flock, module.compile_file = asking, compiling
print(fanin.p4compiler.compile_once(sys.argv[1]).json_text())
"""


@pytest.mark.slow
def test_a_process_that_wants_what_another_compiles_waits_for_it(program: Path) -> None:
    with ExitStack() as ended:

        def start() -> subprocess.Popen[str]:
            command = [sys.executable, "-c", TELLING, str(program)]
            pipe = subprocess.PIPE
            process = ended.enter_context(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe))
            ended.callback(process.kill)
            return process

        first = start()
        assert first.stdout
        assert first.stdout.readline() == "asks\n"
        assert first.stdout.readline() == "compiles\n"
        second = start()
        assert second.stdout
        assert second.stdout.readline() == "asks\n"
        made, found = first.communicate("\n")[0], second.communicate("\n")[0]
        assert made == found == compile_file(program).json_text() + "\n"
