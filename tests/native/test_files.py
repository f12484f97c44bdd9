"""Files that are read if they have an end, and written whole or not at all."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fanin.native.files import naming, read_bytes, replacing, write_json


def test_a_full_disk_names_the_file() -> None:
    full = Path("/dev/full")
    with pytest.raises(OSError, match="No space left on device: '/dev/full'") as raised, naming(full):
        full.write_text("x")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(full))


def test_an_error_that_names_a_file_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised, naming(tmp_path):
        (tmp_path / "none").read_text()
    assert raised.value.filename == str(tmp_path / "none")


def test_after_a_failure_a_file_is_as_it_was_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_json({"first": 1}, path)
    before = path.read_text()
    with pytest.raises(OSError, match="No space left") as raised:
        _fail_half_way(path)
    assert raised.value.filename == str(path)
    with pytest.raises(TypeError):
        write_json({"second": object()}, path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def _fail_half_way(path: Path) -> None:
    with replacing(path) as new:
        new.write_text("half")
        raise OSError(errno.ENOSPC, "in the words of a library")


def test_a_file_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"12345")
    assert read_bytes(tmp_path / "short", 5) == b"12345"
    for path, most in ((tmp_path / "short", 4), (Path("/dev/zero"), 100)):
        with pytest.raises(OSError, match="File too large") as raised:
            read_bytes(path, most)
        assert raised.value.filename == str(path)
