"""Flows in virtual time, and in ns-3 where a Python has it ($FANIN_NS3_PYTHON, or this one)."""

from pathlib import Path

import pytest

from fanin.assurance.bench.ns3.beside import Network, Ns3Error, Ns3Work, Run, permuted, run_ours, run_theirs
from fanin.assurance.bench.pythons import NS3, find_python

SMALL = Network(leaves=2, hosts=2, uplink_rate=2 * 10**11)
PAYLOAD, OURS, THEIRS = 1024, 1112, 1078  # bytes of a flow in a packet, and what it takes on a link
ROUND_TRIP = 10e-6  # seconds: four links there and back, and what packets of a window do not fill


def lower_bound(work: Ns3Work, on_the_link: int) -> float:
    return work.size / PAYLOAD * on_the_link * 8 / work.network.host_rate


def test_a_permutation_has_everybody_send_to_another_one_and_hear_of_another_one() -> None:
    work = permuted(Network())
    assert sorted(work.destinations) == list(range(64))
    assert all(to != source for source, to in enumerate(work.destinations))


def test_our_flows_take_what_their_bytes_take() -> None:
    work = Ns3Work(SMALL, (2, 3, 0, 1), size=1_000_000)
    run = run_ours(work)
    packets = -(-work.size // PAYLOAD)
    assert run.packet_hops >= 4 * 4 * packets
    assert run.events > run.packet_hops
    assert all(0 < seconds - lower_bound(work, OURS) < 2 * ROUND_TRIP for seconds in run.seconds)


def test_what_fails_there_is_said(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no such library >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(Ns3Error, match="no such library"):
        run_theirs(permuted(SMALL), python)


def test_ns_3_has_flows_arrive_at_nearly_the_same_time() -> None:
    if (python := find_python(None, NS3)) is None:
        pytest.skip("ns-3 is not installed")
    work = Ns3Work(SMALL, (2, 3, 0, 1), size=1_000_000)
    run: Run = run_theirs(work, python)
    assert len(run.seconds) == 4
    assert run.packet_hops >= 4 * 4 * -(-work.size // PAYLOAD)
    # A handshake before the first byte, and a receive window that begins small.
    assert all(0 < seconds - lower_bound(work, THEIRS) < 5 * ROUND_TRIP for seconds in run.seconds)
