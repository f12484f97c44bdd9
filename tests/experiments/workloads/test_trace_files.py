"""Files of any format, compressed or not, and files that do not belong together."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.workloads.trace import TraceError
from fanin.experiments.workloads.trace_files import load_calibration, load_trace

TRACES = Path(__file__).parent / "traces"
GLOO = [TRACES / f"gloo-rank{rank}.json.gz" for rank in (0, 1)]


def refusal(*files: Path) -> str:
    with pytest.raises(TraceError) as error:
        load_trace(files)
    return str(error.value)


def kineto(rank: int, sizes: list[int], world: int = 2) -> bytes:
    events: list[dict[str, Any]] = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": "c10d::allreduce_",
            "ts": 10 * number,
            "dur": 1,
            "args": {"Input Dims": [[[size]]], "Input type": ["TensorList"]},
        }
        for number, size in enumerate(sizes)
    ]
    return json.dumps(
        {"distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": events}
    ).encode()


def put(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_compressed_files_and_plain_ones_are_the_same(tmp_path: Path) -> None:
    plain = [
        put(tmp_path, file.name.removesuffix(".gz"), gzip.decompress(file.read_bytes())) for file in GLOO
    ]
    assert load_trace(plain).ranks == load_trace(GLOO).ranks
    chakra = [TRACES / f"dp.{rank}.et" for rank in range(4)]
    packed = [put(tmp_path, f"{file.name}.gz", gzip.compress(file.read_bytes())) for file in chakra]
    assert load_trace(packed).ranks == load_trace(chakra).ranks


def test_ranks_without_a_file_do_what_the_others_do() -> None:
    trace = load_trace(GLOO[:1])
    assert trace.ranks[0] == trace.ranks[1]
    assert "1 of 2 ranks have no file: they are assumed to do what rank 0 does" in trace.notes


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = put(tmp_path, "rank0.json", kineto(0, [100]))
    assert load_trace([path]).largest == 400
    path.write_bytes(kineto(0, [10_000]))
    assert load_trace([path]).largest == 40_000


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    data = GLOO[0].read_bytes()
    assert "ends in the middle: the gzip file is truncated" in refusal(
        put(tmp_path, "a.json.gz", data[:9000])
    )
    damaged = data[:9000] + bytes(50) + data[9050:]
    text = refusal(put(tmp_path, "b.json.gz", damaged))
    assert "is damaged" in text or "b.json.gz:" in text


def test_ranks_that_call_different_collectives_are_refused(tmp_path: Path) -> None:
    first = put(tmp_path, "rank0.json", kineto(0, [100, 200]))
    other = put(tmp_path, "rank1.json", kineto(1, [100, 300]))
    text = refusal(first, other)
    assert "rank1.json: c10d::allreduce_: rank 1 calls all-reduce of 1,200 bytes on 2 ranks as call 2" in text
    assert "rank 0 all-reduce of 800 bytes on 2 ranks" in text
    fewer = put(tmp_path, "fewer1.json", kineto(1, [100]))
    assert "rank 1 makes 1 calls of the group [0, 1], but rank 0 2" in refusal(first, fewer)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.json", b"", "a.json: is empty"),
        ("a.json", b"{}", "a.json: has no list 'traceEvents'"),
        ("a.json", b'{"traceEvents": [{"name": "\xff\xfe"}]}', "has bytes that are not UTF-8"),
        ("a.txt", b"# algbw busbw\n", "is an output of nccl-tests, which has no training"),
        (
            "notes.txt",
            b"hello world, this is no trace at all",
            "notes.txt: is no trace that fanin reads; give a JSON",
        ),
        (
            "program",
            b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 2,
            "program: is no trace that fanin reads; give",
        ),
        (
            "trace.3.et",
            (TRACES / "dp.0.et").read_bytes(),
            "trace.3.et: the file of rank 0 is missing; files of",
        ),
        ("idle.0.et", b"\x03\x0a\x010\x02\x18\x01", "idle.0.et: has neither computing nor collectives"),
        ("huge.json", kineto(0, [4], world=10**6), "has 1000000 ranks, more than the 4096"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    assert words in refusal(put(tmp_path, name, data))


def test_files_of_two_runs_are_refused(tmp_path: Path) -> None:
    first, same = (put(tmp_path, name, kineto(0, [4])) for name in ("a.json", "b.json"))
    assert "has rank 0, as" in refusal(first, same)
    other = put(tmp_path, "c.json", kineto(1, [4], world=3))
    assert "is of 3 ranks, but" in refusal(first, other)
    assert "cannot be read: No such file" in refusal(tmp_path / "none.json")


def test_only_an_output_of_nccl_tests_is_a_calibration() -> None:
    assert load_calibration(GLOO[0]) is None
