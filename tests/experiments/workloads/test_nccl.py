"""Logs of NCCL and outputs of nccl-tests."""

from __future__ import annotations

import pytest

from fanin.experiments.workloads.nccl_log import read_nccl_log
from fanin.experiments.workloads.nccl_tests import Calibration, read_nccl_tests
from fanin.experiments.workloads.trace import TraceError, joined

BEGIN = "node1:10:21 [{0}] NCCL INFO comm 0xa{0} rank {0} nranks 2 cudaDev {0} busId c1000 - Init COMPLETE"
CALL = (
    "node1:10:21 [{0}] NCCL INFO {1}: opCount 1a sendbuff 0x1 recvbuff 0x2 count {2} datatype {3} op 0 root {4} "
    "comm 0xa{0} [nranks=2] stream 0x5"
)


def log(*calls: str) -> list[str]:
    return [
        "node1:10:10 [0] NCCL INFO Bootstrap : Using eth0",
        *(BEGIN.format(rank) for rank in (0, 1)),
        *calls,
    ]


def test_calls_of_a_log_follow_each_other_without_times() -> None:
    names = [("AllReduce", 64, 7), ("AllGather", 10, 6), ("ReduceScatter", 10, 9), ("Broadcast", 53, 0)]
    lines = log(*(CALL.format(rank, name, n, kind, 0) for name, n, kind in names for rank in (1, 0)))
    trace = joined(read_nccl_log(lines, "nccl.log"))
    for nodes in trace.ranks:
        assert [node.call.text for node in nodes if node.call] == [
            "all-reduce of 256 bytes on 2 ranks",
            "all-gather of 40 bytes on 2 ranks",
            "reduce-scatter of 40 bytes on 2 ranks",
            "broadcast of 53 bytes on 2 ranks",
        ]
        assert [node.after for node in nodes] == [(), (0,), (1,), (2,)]
    assert trace.notes == ("an NCCL log has no times: nothing is computed",)


def test_sends_name_their_peer_as_root() -> None:
    lines = log(CALL.format(0, "Send", 8, 7, 1), CALL.format(1, "Recv", 8, 7, 0))
    (key,) = joined(read_nccl_log(lines, "nccl.log")).groups
    assert key == ((0, 1), True)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (log(), "nccl.log: has no calls of collectives; run with NCCL_DEBUG=INFO"),
        (log(CALL.format(0, "Gather", 8, 7, 0)), "nccl.log:4: unknown collective 'Gather'"),
        (log(CALL.format(0, "AllReduce", 8, 42, 0)), "nccl.log:4: field 'datatype': is 42, an unknown type"),
        (
            log("node1:10:21 [0] NCCL INFO AllReduce: opCount 1 count 8 op 0 root 0 comm 0xa0 [nranks=2]"),
            "nccl.log:4: field 'datatype': missing in AllReduce",
        ),
        (
            log(CALL.format(0, "Send", 8, 7, 5)),
            "nccl.log:4: field 'root': is 5, must be another of the 2 ranks",
        ),
        (
            [CALL.format(rank, "AllReduce", 8, 7, 0) for rank in (0, 1)],
            "nccl.log:1: field 'comm': the line 'comm … rank … nranks 2' of this process is missing",
        ),
    ],
)
def test_wrong_lines_are_named_with_their_field(lines: list[str], words: str) -> None:
    with pytest.raises(TraceError) as error:
        list(read_nccl_log(lines, "nccl.log"))
    assert words in str(error.value)


HEADER = [
    "# nThread 1 nGpus 4 minBytes 8 maxBytes 134217728 step: 2(factor)",
    "#  size  count  type  redop  root  time  algbw  busbw  #wrong  time  algbw  busbw  #wrong",
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)",
]


def row(size: int, seconds: float, factor: float, redop: str = "sum") -> str:
    algbw = size / seconds / 1e9
    cells = (size, size // 4, "float", redop, -1, 1e6 * seconds, algbw, factor * algbw, 0, 1, 1, 1, 0)
    return "  ".join(str(cell) for cell in cells)


def test_latency_and_rate_are_those_that_made_the_times() -> None:
    """Four ranks round a ring: 6 hops of 5 us, and 1.5 times the bytes at 10 GB/s; out-of-place."""
    rows = [row(size, 6 * 5e-6 + 1.5 * size / 10e9, 1.5) for size in (8, 8192, 1 << 20, 1 << 24)]
    found = read_nccl_tests([*HEADER, *rows, "# Avg bus bandwidth : 3"], "out.txt")
    assert (found.operation, found.ranks) == ("all-reduce", 4)
    assert found.latency == pytest.approx(5e-6)
    assert found.bandwidth == pytest.approx(10e9)
    assert found.predicted(1 << 20) == pytest.approx(found.seconds[2])


def test_the_name_of_the_program_decides_about_the_operation() -> None:
    rows = [row(size, 3 * 5e-6 + 0.75 * size / 10e9, 0.75, "none") for size in (8, 8192, 1 << 20, 1 << 24)]
    found = read_nccl_tests(["# Collective test starting: all_gather_perf", *HEADER, *rows], "out.txt", 4)
    assert found.operation == "all-gather"
    assert found.bandwidth == pytest.approx(10e9)


def test_no_latency_is_negative() -> None:
    rows = [
        row(size, 1.5 * size / 10e9 * (1.2 if size > 10**6 else 1), 1.5) for size in (8192, 1 << 20, 1 << 24)
    ]
    found: Calibration = read_nccl_tests([*HEADER, *rows], "out.txt")
    assert found.latency == 0
    assert found.bandwidth == pytest.approx(10e9 / 1.13, rel=0.1)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (HEADER, "out.txt: has 0 rows; a calibration needs 3 sizes"),
        ([row(8, 1e-6, 1.5)], "out.txt:1: has a row before the line of column names"),
        ([*HEADER, row(8, 1e-6, 1.5).replace("  1.0  ", "  N/A  ")], "out.txt:4: field 'time': is 'N/A'"),
        (
            [HEADER[0], HEADER[1].replace("time", "tim"), row(8, 1e-6, 1.5)],
            "out.txt:3: field 'time': missing",
        ),
        (
            [*HEADER[1:], *(row(2**n, 2e-6, 1.5) for n in (8, 12, 16))],
            "out.txt: does not state the number of ranks",
        ),
        (
            [*HEADER, *(row(2**n, 1e-6 + 2**n / 1e9, 0.75, "none") for n in (18, 20, 22))],
            "out.txt: does not name the collective; add a line such as",
        ),
    ],
)
def test_outputs_that_do_not_tell_enough_are_refused(lines: list[str], words: str) -> None:
    with pytest.raises(TraceError) as error:
        read_nccl_tests(lines, "out.txt")
    assert words in str(error.value)
