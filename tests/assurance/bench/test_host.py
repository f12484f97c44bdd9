"""The facts of the machine that a benchmark reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.assurance.bench import host as host_module
from fanin.assurance.bench.host import caches, host, in_words, memory_bandwidth


def test_caches_have_the_sizes_that_the_kernel_says(tmp_path: Path) -> None:
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "32K"), (1, "Instruction", "64K"), (2, "Unified", "1024K"), (3, "Unified", "32M")]
    ):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    assert caches(tmp_path) == {"L1d": 32 << 10, "L1i": 64 << 10, "L2": 1 << 20, "L3": 32 << 20}


def test_a_kernel_that_does_not_say_has_none(tmp_path: Path) -> None:
    assert caches(tmp_path / "nowhere") == {}
    known = {"processor": "one", "cores": 2, "memory_bytes_per_second": 5e9}
    assert in_words({**known, "caches": {}}) == "one, 2 cores; caches: not known; memory copies 5 GB/s"
    assert "caches: L1d 32 KiB, L2 1,024 KiB;" in in_words(
        {**known, "caches": {"L1d": 32 << 10, "L2": 1 << 20}}
    )


def test_this_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "caches", lambda: {"L2": 1 << 20})  # some have half a gigabyte
    found = host()
    assert found["memory_bytes_per_second"] > 0
    assert found["processor"] in in_words(found)


def test_copying_is_measured() -> None:
    assert 1e6 < memory_bandwidth(1 << 20) < 1e13
