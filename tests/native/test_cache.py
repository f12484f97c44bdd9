"""The user's cache: whose it is, and what is said where nothing can be kept."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from native.cache import CacheError, cache_directory, locked


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
        f"a file there is another user's: sudo chown -R 12345 {folder}"
    )
