"""The environment of p4runtime-shell is made once, whole, in the user's cache; here a script is Python and pip."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fanin import shell_environment
from fanin.shell_environment import SetUpError

Python = Callable[[str], Path]


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Python:
    """Makes a Python that makes environments in which pip does this; the file it gives has a line for each call."""
    log, program = tmp_path / "log", tmp_path / "python"

    def install(pip: str) -> Path:
        program.write_text(
            f"""#!/bin/sh
echo "$2 $3" >>{log}
if [ "$2" = pip ]; then {pip}; exit; fi
test "$2 $3" = "venv --clear" && rm -rf "$4" && mkdir -p "$4/bin" && cp "$0" "$4/bin/python"
"""
        )
        program.chmod(0o755)
        return log

    monkeypatch.setattr("sys.executable", str(program))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return install


def test_it_is_made_once_in_the_users_cache(python: Python, tmp_path: Path) -> None:
    log = python("true")
    assert not shell_environment.ready()
    shell_environment.set_up()
    shell_environment.set_up()
    assert shell_environment.ready()
    assert log.read_text().splitlines() == ["venv --clear", "pip install"]
    assert shell_environment.python().parents[2] == tmp_path / "cache" / "fanin"


def test_all_who_want_it_at_a_time_wait_for_one_to_make_it(python: Python) -> None:
    log = python("true")
    threads = [threading.Thread(target=shell_environment.set_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.read_text().splitlines() == ["venv --clear", "pip install"]


def test_half_of_one_is_made_anew(python: Python) -> None:
    python("kill -9 $$")
    with pytest.raises(SetUpError):
        shell_environment.set_up()
    assert shell_environment.python().exists()
    assert not shell_environment.ready()
    log = python("true")
    shell_environment.set_up()
    assert shell_environment.ready()
    assert log.read_text().splitlines() == ["venv --clear", "pip install"] * 2


def test_what_pip_says_is_told(python: Python) -> None:
    python("echo no index >&2; exit 1")
    with pytest.raises(SetUpError, match=r"cannot be installed into .*p4runtime-shell-\w+:\nno index"):
        shell_environment.set_up()


def test_other_packages_have_another_folder(python: Python, monkeypatch: pytest.MonkeyPatch) -> None:
    python("true")
    shell_environment.set_up()
    monkeypatch.setattr(shell_environment, "PACKAGES", ("p4runtime-shell==9.9",))
    assert not shell_environment.ready()


@pytest.mark.usefixtures("python")
def test_without_room_in_the_users_cache_it_says_where_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(
        SetUpError, match=r"file/fanin: Not a directory; name another folder in \$XDG_CACHE_HOME"
    ):
        shell_environment.set_up()


def test_a_user_without_a_home_is_told_what_to_set(python: Python, monkeypatch: pytest.MonkeyPatch) -> None:
    python("true")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999)
    with pytest.raises(SetUpError, match=r"no home folder.*\$XDG_CACHE_HOME"):
        shell_environment.set_up()
