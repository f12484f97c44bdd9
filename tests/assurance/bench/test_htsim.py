"""The same flows in virtual time and in htsim, which a script replaces here; FANIN_HTSIM names the real one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from fanin.assurance.bench.htsim import HtsimError, run_htsim, run_ours
from fanin.assurance.validation.simulators import SIZE, incast

PAIRS = incast(3)


def program(folder: Path, says: str) -> Path:
    """Return a program that checks its traffic matrix, and prints a line for each flow."""
    path = folder / "htsim_eqds"
    path.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "lines = open(sys.argv[sys.argv.index('-tm') + 1]).read().splitlines()\n"
        f"assert lines[:3] == ['Nodes 16', 'Connections 3', '0->3 start 0 size {SIZE}'], lines\n"
        f"{says}\n"
    )
    path.chmod(0o755)
    return path


def test_the_last_flow_counts(tmp_path: Path) -> None:
    line = "Flow Eqds_0_3 flowId 1 Eqds finished at {} total packets 490 RTS 0 total bytes 2000000"
    says = f"for end in (170.5, 492.25, 330): print({line!r}.format(end))"
    found = run_htsim("small", PAIRS, program(tmp_path, says), hosts=16)
    assert (found.seconds, found.bytes, found.packet_hops) == (492.25e-6, 3 * SIZE, None)
    assert found.processor_seconds > 0


def test_what_fails_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HtsimError, match=r"nothing cannot be started: No such file or directory"):
        run_htsim("small", PAIRS, tmp_path / "nothing", hosts=16)
    with pytest.raises(HtsimError, match=r"(?s)ended with status 1: .*no matrix"):
        run_htsim("small", PAIRS, program(tmp_path, "raise ValueError('no matrix')"), hosts=16)
    with pytest.raises(HtsimError, match=r"reports the end of 0 of 3 flows; build htsim_eqds"):
        run_htsim("small", PAIRS, program(tmp_path, "print('Usage')"), hosts=16)


@pytest.mark.slow
def test_flows_of_larger_packets_take_fewer_packet_hops_and_arrive_nearly_as_soon() -> None:
    small, large = (run_ours("small", PAIRS, payload, k=4) for payload in (1024, 4096))
    assert small.packet_hops is not None
    assert large.packet_hops is not None
    assert 3 < small.packet_hops / large.packet_hops < 4.5
    on_the_link = 3 * SIZE * 8 / 100e9  # without headers
    assert on_the_link < large.seconds < small.seconds < 1.15 * on_the_link


@pytest.mark.skipif("FANIN_HTSIM" not in os.environ, reason="FANIN_HTSIM does not name htsim_eqds")
def test_htsim_has_flows_arrive_at_nearly_the_same_time() -> None:
    theirs = run_htsim("small", PAIRS, Path(os.environ["FANIN_HTSIM"]), hosts=16)
    assert theirs.seconds == pytest.approx(run_ours("small", PAIRS, 4096, k=4).seconds, rel=0.1)
