"""All-reduces in MSCCL's XML: what they become, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fanin.experiments.msccl import MscclError, read_msccl
from fanin.experiments.schedule_file import FileAllReduce, problem_of
from fanin.workers.host_based.algorithms.ring import Ring

RING = Path(__file__).parents[2] / "examples" / "own-schedule" / "ring4.xml"

# Each of two GPUs sends its half of two chunks, gets the other one back summed; two thread blocks, joined by `dep`.
TWO_BLOCKS = """
<algo name="pair" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0"><tb id="0" send="1" recv="-1" chan="0">
    <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="0" hasdep="0"/>
  </tb><tb id="1" send="-1" recv="1" chan="0">
    <step s="0" type="rrc" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    <step s="1" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb></gpu>
  <gpu id="1"><tb id="0" send="0" recv="-1" chan="0">
    <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    <step s="1" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="1" deps="0" hasdep="0"/>
  </tb><tb id="1" send="-1" recv="0" chan="0">
    <step s="0" type="rrc" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    <step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="-1" deps="-1" hasdep="0"/>
    <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
  </tb></gpu>
</algo>
"""


def test_a_ring_moves_what_the_ring_of_fanin_does() -> None:
    """The same parts to the same neighbours; only the ranks at which parts begin differ."""
    ring = FileAllReduce(str(RING), read_msccl(RING))
    assert not ring.problem(4)
    assert ring.shares(4, None) == pytest.approx(Ring().shares(4, None))
    for rank, one in enumerate(ring.schedules(4, 1000, 100)):
        pieces = [*one.sends[(rank + 1) % 4]]
        assert len(pieces) == 6 * 3  # 250 elements in pieces of up to 100
        assert [piece.stop - piece.start for piece in pieces[:3]] == [100, 100, 50]


def test_steps_of_several_thread_blocks_keep_their_order(tmp_path: Path) -> None:
    path = tmp_path / "pair.xml"
    path.write_text(TWO_BLOCKS)
    assert problem_of(str(path), 2) == ""
    first, second = read_msccl(path)(0, 2, 10, 100).sends[1]
    assert (first.start, first.after, second.start, second.after, second.needed) == (5, -1, 0, 1, 1)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("<algo", "<algorithm", "is not XML: mismatched tag"),
        (
            'coll="allreduce"',
            'coll="allgather"',
            'is not an all-reduce of MSCCL; it must begin with <algo … coll="allreduce">',
        ),
        ('ngpus="4"', 'ngpus="8"', "ngpus is 8, and there are programs for [0, 1, 2, 3]"),
        ('nchunksperloop="4"', 'nchunksperloop="many"', "algo: nchunksperloop must be a number, not 'many'"),
        ('nchunksperloop="4"', 'nchunksperloop="3"', "there are chunks 0 to 2, not 3 to 3"),
        ('type="rrs"', 'type="re"', "gpu 0, tb 0, step 1: steps of type 're' cannot be carried out"),
        ('srcbuf="i"', 'srcbuf="s"', "gpu 0, tb 0, step 0: uses a scratch buffer"),
        ('recv="3"', 'recv="-1"', "gpu 0, tb 0, step 1: is of type 'rrs', and its tb has no recv"),
        (
            'depid="-1" deps="-1"',
            'depid="7" deps="2"',
            "gpu 0: a step awaits step 2 of tb 7, which does not exist",
        ),
        ('depid="-1" deps="-1"', 'depid="0" deps="3"', "gpu 0: steps await one another in a circle"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "changed.xml"
    path.write_text(RING.read_text().replace(old, new, 1 if "dep" in old or "algo" in old else -1))
    with pytest.raises(MscclError) as refused:
        read_msccl(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert words in str(refused.value)


def test_the_number_of_workers_has_to_be_that_of_the_file() -> None:
    assert problem_of(str(RING), 3) == f"{RING}: is an algorithm for 4 GPUs, and there are 3 workers"
