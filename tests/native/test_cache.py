"""The user's cache: whose it is, what is said where nothing can be kept, and what makes room for the rest."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fanin.native.cache import (
    LOOKED,
    MAX_BYTES,
    SELDOM,
    CacheError,
    Library,
    cache_directory,
    libraries,
    locked,
    make_room,
    remove_unused,
)
from fanin.native.toolchain import INCLUDE, compile_text


def test_without_a_home_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999)  # whom no password file has
    with pytest.raises(CacheError, match=r"has no home folder.*name a folder in \$XDG_CACHE_HOME"):
        cache_directory()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_sudo_left_is_named_with_how_to_get_it_back() -> None:
    with tempfile.TemporaryDirectory() as base:  # one that others than root get into
        folder = Path(base, "fanin")
        folder.mkdir(mode=0o700)
        (folder / "entry.lock").touch(mode=0o600)
        for path in (base, folder):
            os.chown(path, 12345, 12345)
        os.seteuid(12345)
        try:
            with pytest.raises(CacheError) as refused, locked(folder / "entry"):
                pass
        finally:
            os.seteuid(0)
    assert str(refused.value) == (
        f"nothing can be kept in {folder}: Permission denied; "
        f"a file there belongs to another user: sudo chown -R 12345 {folder}"
    )


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path) -> None:
    with (
        pytest.raises(
            CacheError, match=r"No space left on device; make room there, or name another folder in"
        ),
        locked(tmp_path / "cache" / "entry"),
    ):
        Path("/dev/full").write_text("x")


# Room

DAY = 86_400.0
OLD = 1_000_000.0  # seconds since 1970


def name(number: int) -> str:
    return f"program-{number:032x}"


def keep(folder: Path, number: int, size: int, used: float) -> Path:
    """A library as the toolchain leaves it."""
    library = folder / f"{name(number)}.so"
    with locked(library) as lock:
        library.write_bytes(bytes(size - size // 2))
        library.with_suffix(".c").write_bytes(bytes(size // 2))
        os.utime(lock.fileno(), (used, used))
    return library


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "fanin"


def numbers(there: list[Library]) -> list[int]:
    return [int(library.lock.stem.partition("-")[2], 16) for library in there]


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(-4, 4)), max_size=12),
    st.integers(0, 600),
)
def test_the_least_recently_used_go_until_the_rest_has_room(made: list[tuple[int, int]], keeps: int) -> None:
    with tempfile.TemporaryDirectory() as base:
        folder, now = Path(base, "fanin"), time.time()
        folder.mkdir(mode=0o700)
        ages = [days * DAY + 3600 for _, days in made]  # some of times to come: of a clock that was wrong
        for number, ((size, _), age) in enumerate(zip(made, ages, strict=True)):
            keep(folder, number, size, now - age)
        gone, there = numbers(remove_unused(folder, keeps)), numbers(libraries(folder))
        assert sorted(gone + there) == list(range(len(made)))
        assert all(ages[number] > DAY for number in gone)
        assert all(ages[one] >= ages[other] for one in gone for other in there)
        bytes_ = sum(made[number][0] for number in there)
        assert bytes_ <= keeps or all(ages[number] < DAY for number in there)
        # Not one too many.
        assert not gone or bytes_ + made[gone[-1]][0] > keeps
        left = {path.name for path in folder.iterdir()}
        assert left == {name(number) + suffix for number in there for suffix in (".so", ".c", ".lock")}


def test_what_is_used_again_stays_though_others_are_younger(folder: Path) -> None:
    first, _ = (keep(folder, number, 100, OLD + number) for number in range(2))
    with locked(first):
        pass
    assert numbers(remove_unused(folder, 100)) == [1]


def test_what_is_being_made_stays(folder: Path) -> None:
    library = keep(folder, 1, 100, OLD)
    with locked(library) as lock:
        os.utime(lock.fileno(), (OLD, OLD))
        assert remove_unused(folder, 0) == []
    assert numbers(remove_unused(folder, 0)) == [1]


def test_what_has_been_used_since_it_was_looked_at_stays(folder: Path) -> None:
    library = keep(folder, 1, 100, OLD)
    (looked_at,) = libraries(folder)
    with locked(library):
        pass
    assert not looked_at.remove()
    assert library.exists()


def test_what_another_process_has_removed_meanwhile_stays_gone(folder: Path) -> None:
    keep(folder, 1, 100, OLD)
    (looked_at,) = libraries(folder)
    assert looked_at.remove()
    assert not looked_at.remove()
    assert not list(folder.iterdir())


def test_who_waits_for_what_is_removed_makes_it_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else two would make one library at a time: the one that waited, and the next, which finds no lock."""
    library = keep(folder, 1, 100, OLD)
    waits, seen = threading.Event(), []
    flock = fcntl.flock

    def wait_for_it() -> None:
        with locked(library):
            seen.append((library.exists(), library.with_suffix(".lock").exists()))

    waiting = threading.Thread(target=wait_for_it)

    def begin_to_wait(file: IO[str], how: int) -> None:
        if threading.current_thread() is waiting:
            waits.set()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", begin_to_wait)
    with locked(library):
        waiting.start()
        assert waits.wait(60)
        for path in folder.iterdir():
            path.unlink()
    waiting.join()
    assert seen == [(False, True)]


def test_what_others_have_put_there_stays(folder: Path) -> None:
    keep(folder, 1, 100, OLD)
    others = [
        "vm/disk.ext4",
        "p4runtime-shell-0123456789abcdef.lock",
        "notes.c",
        "try-0123.so",
        "try-0123.lock",
    ]
    for other in others:
        path = folder / other
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(1000))
        os.utime(path, (OLD, OLD))
    assert numbers(remove_unused(folder, -1, 0.0)) == [1]
    assert {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} == set(others)


def test_a_compilation_makes_room(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder.parent))
    old = keep(folder, 1, 100, OLD)
    os.truncate(old, MAX_BYTES)  # a hole, which takes no room on the disk
    made = compile_text("program", b"", lambda: "int x;", INCLUDE)
    assert made.exists()
    assert not old.exists()


@pytest.mark.parametrize("clock", [1, -1])
def test_room_is_looked_for_once_in_a_while_whatever_the_clock_did(folder: Path, clock: int) -> None:
    def full() -> bool:
        """Return whether a program that is too large was left there."""
        old = keep(folder, 1, 100, OLD)
        os.truncate(old, MAX_BYTES + 1)
        make_room(folder)
        return old.exists()

    assert [full(), full()] == [False, True]
    for ago, left in ((SELDOM - 60, True), (SELDOM + 60, False)):
        before = time.time() - clock * ago
        os.utime(folder / LOOKED, (before, before))
        assert full() == left
