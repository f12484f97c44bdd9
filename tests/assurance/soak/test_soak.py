"""Random scenarios pass; the same with a defect in the protocol do not."""

from __future__ import annotations

import io
import json
import pickle
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fanin.assurance.soak import campaign, fabric
from fanin.assurance.soak.campaign import Soak, soak
from fanin.assurance.soak.generate import draw_scenario
from fanin.assurance.soak.run import run_scenario
from fanin.assurance.soak.scenario import (
    RECOVERY,
    Restart,
    Scenario,
    Stall,
    Work,
    lossless_queue_bytes,
)
from fanin.assurance.soak.shrink import shrink
from fanin.assurance.soak.trace import Trace
from fanin.controller.telemetry import Event
from fanin.controller.tree import Job, aggregation_tree
from fanin.experiments.protocol import OURS, protocol_of
from fanin.p4switch.engine.engine import Engine
from fanin.simulator import History
from fanin.topologies.link import Burst, LinkProperties, Pause
from fanin.workers import wire
from fanin.workers.engines import native
from fanin.workers.engines.blocks import Blocks
from fanin.workers.engines.engine import State
from fanin.workers.engines.native import NativeEngine
from fanin.workers.engines.reference import NumpyEngine
from fanin.workers.host_based.participant import HostBasedWorker
from fanin.workers.host_based.transport import (
    NAK,
    GoBackNReceiver,
    GoBackNSender,
    Rows,
    SelectiveRepeatReceiver,
)
from fanin.workers.protocol import MakeWorker, Worker
from fanin.workers.recovery import Timers
from fanin.workers.tensor import Tensor
from fanin.workers.values import scaling
from tests.assurance.soak.program_mutants import PROGRAM_MUTANTS
from tests.sizes import sized

pytestmark = pytest.mark.slow

SCENARIOS = sized(30, 100)  # `fanin soak` runs thousands
HISTORIES = sized(5, 20)
WITHIN = 200  # seeds, in which a mutant must be caught
FAULTLESS = Scenario(0, (Work((2, 3), elements=(2000, 500)),))


@pytest.mark.long
def test_whatever_happens_every_sum_is_exact_and_every_worker_finishes(switch: Engine) -> None:
    """And the scenarios meet every kind of fault and every rule."""
    faults: set[str] = set()
    events: set[Event] = set()
    between_hosts: set[tuple[str, str]] = set()
    for seed in range(SCENARIOS):
        scenario = draw_scenario(seed)
        outcome = run_scenario(scenario, switch)
        assert not outcome.violations, scenario
        faults.update(outcome.faults)
        events.update(outcome.events)
        between_hosts.update(
            (work.algorithm, work.transport) for work in scenario.works if not work.in_network
        )
    assert faults >= {
        *("loss", "burst loss", "corruption", "duplication", "reordering", "queue drop", "stall"),
        *("switch restart", "pause", "registers lost", "grant again", "stranger", "mismatch", "gave up"),
        *("job came", "job waited"),
    }
    assert len(events) == 7
    algorithms, transports = map(set, zip(*between_hosts, strict=True))
    assert len(algorithms) == 4
    assert len(transports) == 2


def test_a_seed_has_one_history(switch: Engine) -> None:
    scenario = draw_scenario(4)
    histories = [History(), History()]
    outcomes = [run_scenario(scenario, switch, observer=history) for history in histories]
    assert outcomes[0] == outcomes[1]
    assert histories[0].digest == histories[1].digest


@pytest.mark.long
@pytest.mark.skipif(native.library() is None, reason="no C compiler")
def test_workers_whose_packets_are_c_s_have_the_same_history(switch: Engine) -> None:
    for seed in range(HISTORIES):
        scenario = draw_scenario(seed)
        histories = [History(), History()]
        outcomes = [
            run_scenario(scenario, switch, partial(Worker, engine=engine, **OPTIONS), history)
            for engine, history in zip((NumpyEngine, NativeEngine), histories, strict=True)
        ]
        assert outcomes[0] == outcomes[1], scenario
        assert histories[0].digest == histories[1].digest, scenario


# -- mutants of the program


def assert_caught(switch: Engine, make_worker: MakeWorker | None = None, likely: int = 0) -> None:
    """It works where nothing goes wrong, and some seed catches it; `likely` is tried first."""
    assert not run_scenario(FAULTLESS, switch, make_worker).violations
    seeds = (likely, *range(WITHIN))
    assert any(run_scenario(draw_scenario(s), switch, make_worker).violations for s in seeds)


# Those that need lost registers at one moment in many: test_soak_exhaustive.py catches them.
SEARCHED = {"incomplete chunks kept", "added to a stored result"}
# The seed that shows one soonest; another draw of scenarios only makes the search long again.
LIKELY = {
    "UDP checksum not verified": 2,
    "a chunk tag of 16 bits": 27,
    "a congestion mark forgotten": 95,
    "a congestion mark that stays in its cell": 18,
    "a negative overflow wraps": 5,
    "a result added to an incomplete sum": 177,
    "a result served again to all": 7,
    "a result that lacks the sum below instead of it": 8,
    "admission without the chunk range": 35,
    "all children alike if one gives": 8,
    "all children alike if one takes": 10,
    "an earlier saturation forgotten": 41,
    "an older result taken from the parent": 44,
    "calls not told apart": 15,
    "calls told apart by seven bits": 47,
    "cells beyond the lease kept": 7,
    "chunk numbers compared with a sign": 17,
    "no chunk tag": 6,
    "no re-serve": 7,
    "not quantizable forgotten": 3,
    "old chunks let through": 99,
    "partial sum not sent up again": 10,
    "saturation ignored": 5,
    "the call of a result from the parent not compared": 11,
    "the packet decides whether it needs a checksum": 177,
    "the sum below complete as that of the chunk before was": 7,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(set(PROGRAM_MUTANTS) - SEARCHED))
def test_a_mutant_of_the_program_is_caught(mutant: Callable[[str], Engine], name: str) -> None:
    assert_caught(mutant(name), likely=LIKELY.get(name, 0))


# -- mutants of what is sent between hosts


def test_early_packets_that_go_back_n_takes_are_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(receiver: GoBackNReceiver, numbers: NDArray[np.int64], payloads: Rows) -> list[Rows]:
        receiver._expected += len(numbers)
        return [payloads]

    monkeypatch.setattr("fanin.simulator.fabric.fastest", HostBasedWorker)  # those in C have no such method
    monkeypatch.setattr(GoBackNReceiver, "_sort", take)
    assert_caught(switch, likely=3)


def test_packets_that_are_handed_out_twice_are_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sort = SelectiveRepeatReceiver._sort

    def repeat(receiver: SelectiveRepeatReceiver, numbers: NDArray[np.int64], payloads: Rows) -> list[Rows]:
        return [payloads[:1]] if numbers[0] < receiver._expected else sort(receiver, numbers, payloads)

    monkeypatch.setattr("fanin.simulator.fabric.fastest", HostBasedWorker)  # those in C have no such method
    monkeypatch.setattr(SelectiveRepeatReceiver, "_sort", repeat)
    assert_caught(switch, likely=117)


# -- mutants of the worker


class OneVersion(NumpyEngine):
    def pack(self, chunks: NDArray[np.int64], now: float) -> list[NDArray[np.void]]:
        batches = super().pack(chunks, now)
        state = self._state
        places = (chunks + state.progress.first_chunk) % state.lease.window
        for packets in state.packets:
            packets["pool_index"][places] &= 0x7FFF
        for batch in batches:
            batch["pool_index"] &= 0x7FFF
        self._pool_indices[places] &= 0x7FFF
        return batches


class ImpatientTimers(Timers):
    def expired(self, now: float) -> NDArray[np.int64]:
        places = super().expired(now)
        self._timeouts[places] = np.inf
        self.earliest()
        return places


class TimerNeverRestarted(NumpyEngine):
    def __init__(self, state: State) -> None:
        super().__init__(state)
        state.timers = ImpatientTimers(state.lease.window, state.recovery)


class TrustingBlocks(Blocks):
    """Takes every sum that was scaled for the exponents expected."""

    def _learn(
        self, blocks: NDArray[np.int64], largest: NDArray[np.int8], quantizable: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        if self.tensor.delayed:
            assert self.tensor.expected is not None
            largest = self.tensor.expected[blocks]
        return super()._learn(blocks, largest, quantizable)


class HastyBlocks(Blocks):
    """Sends blocks again in the order in which it learns of them."""

    def _learn(
        self, blocks: NDArray[np.int64], largest: NDArray[np.int8], quantizable: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        missed = self.missed
        fits = super()._learn(blocks, largest, quantizable)
        if self.tensor.delayed:
            self.missed = np.concatenate([missed, blocks[~fits]])
        return fits


class Trusting(NumpyEngine):
    blocks: type[Blocks] = TrustingBlocks

    def _make_blocks(
        self, tensor: Tensor, call: int, x: NDArray[np.float32], out: NDArray[np.float32]
    ) -> Blocks:
        return self.blocks(tensor, call, x, out, self._factors)


class Hasty(Trusting):
    blocks = HastyBlocks


class AnyLease(NumpyEngine):
    def _take(self, datagrams: NDArray[np.uint8], now: float) -> NDArray[np.int64] | None:
        datagrams = datagrams.copy()
        datagrams[:, 1] = self._state.lease.id
        return super()._take(datagrams, now)


class CredulousBlocks(Blocks):
    """Takes whatever comes for a chunk: of any call, and with a largest exponent below its own."""

    def possible(self, chunks: NDArray[np.int64], _packets: NDArray[np.void]) -> NDArray[np.bool_]:
        return np.ones(len(chunks), np.bool_)


class Credulous(Trusting):
    blocks = CredulousBlocks


class UnnumberedBlocks(Blocks):
    """Says in its packets what the call is, but not which one."""

    def __init__(self, tensor: Tensor, _call: int, *arrays: Any) -> None:
        super().__init__(tensor, tensor.signature, *arrays)


class Unnumbered(Trusting):
    blocks = UnnumberedBlocks


class UnsignedBlocks(Blocks):
    """Says in its packets which call it is, but not what."""

    def __init__(self, tensor: Tensor, call: int, *arrays: Any) -> None:
        super().__init__(tensor, (call - tensor.signature) % wire.CALLS, *arrays)


class Unsigned(Trusting):
    blocks = UnsignedBlocks


class HeedlessBlocks(Blocks):
    """Reads what comes with the flag that some worker could not quantize its block."""

    def read(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> int:
        packets = packets.copy()
        packets["e1"] = 0
        return super().read(chunks, packets)

    def write(self, chunks: NDArray[np.int64], packets: NDArray[np.void]) -> None:
        with np.errstate(invalid="ignore"):  # of what cannot be quantized
            super().write(chunks, packets)


class Heedless(Trusting):
    blocks = HeedlessBlocks


OPTIONS: dict[str, Any] = {"non_finite": "propagate", "on_saturation": "count"}


WORKER_MUTANTS: dict[type[NumpyEngine], int] = {  # with the seed that shows it soonest
    OneVersion: 104,
    TimerNeverRestarted: 41,
    Trusting: 7,
    Hasty: 15,
    AnyLease: 154,
    Credulous: 104,
    Heedless: 1,
    Unnumbered: 47,
    Unsigned: 15,
}


@pytest.mark.parametrize("engine", WORKER_MUTANTS)
def test_a_mutant_of_the_worker_is_caught(switch: Engine, engine: type[NumpyEngine]) -> None:
    assert_caught(switch, partial(Worker, engine=engine, **OPTIONS), likely=WORKER_MUTANTS[engine])


@pytest.mark.parametrize(
    ("headroom", "slack", "likely"), [(5, 6, 162), (5, 2, 7), (1, 6, 162), (-3, 2, 162), (1, -2, 7)]
)
def test_other_margins_of_delayed_scaling_are_caught(
    switch: Engine, monkeypatch: pytest.MonkeyPatch, headroom: int, slack: int, likely: int
) -> None:
    monkeypatch.setattr(scaling, "HEADROOM", headroom)
    monkeypatch.setattr(scaling, "SLACK", slack)
    assert_caught(switch, partial(Worker, engine=NumpyEngine, **OPTIONS), likely)


# -- several jobs, and pauses

NEIGHBOURS = (Work((2, 1), elements=(3000,)), Work((1, 2), window=8, values=256, elements=(4000, 100)))


def test_scenarios_have_one_to_three_jobs_and_every_host_has_one() -> None:
    scenarios = [draw_scenario(seed) for seed in range(200)]
    assert {len(scenario.jobs) for scenario in scenarios} == {1, 2, 3}
    for scenario in scenarios:
        at_once = scenario.hosts[: len(scenario.jobs)]
        hosts = [host for of_job in at_once for host in of_job]
        assert len(hosts) == len(set(hosts)) == sum(job.workers for job in scenario.jobs)
        assert [len(of_job) for of_job in at_once] == [job.workers for job in scenario.jobs]


def test_scenarios_have_two_to_four_tiers_and_trees_as_deep() -> None:
    scenarios = [draw_scenario(seed) for seed in range(200)]
    assert {len(scenario.topology.tiers) for scenario in scenarios} >= {2, 3, 4}
    depths = Counter(
        len({scenario.topology.switch(part.switch).role for part in tree.aggregators})
        for scenario in scenarios
        for tree in (aggregation_tree(scenario.topology, Job(1, hosts)) for hosts in scenario.hosts)
    )
    assert all(depths[tiers] > 10 for tiers in (1, 2, 3, 4))


def test_links_between_hosts_corrupt_so_seldom_that_no_two_bits_of_a_packet_flip() -> None:
    scenarios = [scenario for scenario in map(draw_scenario, range(400)) if scenario.links.corruption]
    for scenario in scenarios:
        if scenario.revocations or not all(work.in_network for work in scenario.works):
            assert scenario.links.corruption <= 1e-4
    assert any(scenario.links.corruption > 0.01 for scenario in scenarios)


def test_scenarios_pass_2_to_the_31_and_have_taps_and_leases_whose_numbers_come_down() -> None:
    scenarios = [draw_scenario(seed) for seed in range(WITHIN)]
    passing = [
        one for one in scenarios if 0 < 2**31 - one.first_chunk <= max(work.chunks for work in one.works)
    ]
    assert len(passing) > WITHIN / 10
    assert {one.taps for one in scenarios} == {0.0, 0.02, 0.3}
    assert {one.same_leases for one in scenarios if one.descending and one.later} == {True, False}


@pytest.mark.parametrize("first", [0, 7])
def test_a_tap_sends_results_that_switches_drop(switch: Engine, first: int) -> None:
    outcome = run_scenario(replace(FAULTLESS, seed=first, taps=0.5), switch)
    assert not outcome.violations
    assert outcome.faults["result from a tap"] > 20


def test_the_stall_of_one_job_does_not_hold_up_another(switch: Engine) -> None:
    one, other = NEIGHBOURS
    stalled = replace(one, stalls=(Stall(0, 0.0, 1.0),))
    with_stall = run_scenario(Scenario(0, (stalled,)), switch)
    assert with_stall.seconds > 1.0
    both = Scenario(0, (stalled, other))
    outcome = run_scenario(both, switch)
    assert not outcome.violations
    assert outcome.seconds == pytest.approx(with_stall.seconds, rel=0.01)


def test_a_restart_touches_only_the_jobs_of_the_switch(switch: Engine) -> None:
    """Two leaves have a job each; the check counts the chunks of a job that keeps its lease."""
    apart = (Work((2,), elements=(30_000,)), Work((0, 2), elements=(30_000,)))
    scenario = Scenario(0, apart, restarts=(Restart(0, 1e-4),))
    outcome = run_scenario(scenario, switch)
    assert not outcome.violations
    assert outcome.faults["switch restart"] == 1


def test_a_lossless_scenario_pauses_and_drops_nothing(switch: Engine) -> None:
    jobs = tuple(replace(work, window=64, elements=(20_000,)) for work in NEIGHBOURS)
    links = LinkProperties(delay=2e-6, pause=Pause(xoff_bytes=1000, xon_bytes=500))
    pausing = Scenario(0, jobs, rate=10**9, links=links)

    def but(**changes: Any) -> Scenario:
        return replace(pausing, links=links.model_copy(update=changes))

    room = lossless_queue_bytes(pausing)
    assert pausing.lossless
    assert but(queue_bytes=room).lossless
    assert not but(queue_bytes=2500).lossless
    assert not but(duplication=0.1).lossless
    assert not but(pause=None).lossless
    outcome = run_scenario(but(queue_bytes=room), switch)
    assert not outcome.violations
    assert outcome.faults["pause"] > 0
    assert outcome.faults["queue drop"] == 0


# -- shrinking


def test_a_failure_shrinks_to_what_it_needs(mutant: Callable[[str], Engine]) -> None:
    defective = mutant("no re-serve")

    def fails(scenario: Scenario) -> bool:
        return bool(run_scenario(scenario, defective).violations)

    work = Work((2, 1), window=8, elements=(700, 900), skew=1e-4)
    pause = Pause(xoff_bytes=1000, xon_bytes=500)
    links = LinkProperties(delay=2e-6, loss=0.1, duplication=0.1, pause=pause)
    scenario = Scenario(3, (work, Work((1, 1))), links=links)
    assert fails(scenario)
    smallest = shrink(scenario, fails)
    assert fails(smallest)
    assert smallest.links == LinkProperties(delay=2e-6, loss=0.1)
    (work,) = smallest.jobs
    assert work.workers < 3
    assert len(work.elements) == 1
    assert "loss=0.1" in str(smallest)
    assert smallest == eval(str(smallest))


def test_the_bound_of_a_scenario_grows_with_what_is_lost() -> None:
    assert Scenario(0, links=LinkProperties(loss=0.1)).bound > Scenario(0).bound > 10 * RECOVERY.max_rto


def test_a_burst_of_loss_that_only_retransmissions_end_is_within_the_bound(switch: Engine) -> None:
    links = LinkProperties(delay=5e-6, ecn_bytes=0, displacement=2e-4, burst=Burst(begin=0.01, end=0.1))
    work = Work((0, 1, 4), window=16, elements=(14837,))
    assert not run_scenario(Scenario(52907, (work,), rate=10**11, links=links), switch).violations


# -- scenarios that would not end


def test_a_run_that_gets_on_too_slowly_is_stopped_and_says_so(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each copy of a request to go back brings a window."""

    def obey(sender: GoBackNSender, kind: int, *_: Any) -> bool:
        if kind == NAK:
            sender._go_back()
        return False

    work = Work((2, 1), window=64, elements=(20_000,), algorithm="ring", transport="go-back-n")
    links = LinkProperties(delay=2e-6, reordering=0.3, displacement=2e-4, duplication=0.3)
    scenario = Scenario(0, (work,), links=links)
    monkeypatch.setattr(fabric, "MAX_HOPS", 50_000)
    assert not run_scenario(scenario, switch).violations
    monkeypatch.setattr("fanin.simulator.fabric.fastest", HostBasedWorker)  # those in C have no such method
    monkeypatch.setattr(GoBackNSender, "_find_lost", obey)
    outcome = run_scenario(scenario, switch)
    assert re.fullmatch(r"stopped at \S+ s, after 50\d{3} packet-hops", outcome.violations[0])
    assert outcome.violations[1].startswith("job 0, rank 0 has not finished by ")


@pytest.mark.few(1)
@pytest.mark.long
@pytest.mark.parametrize("marked_from", [0, None])
def test_go_back_n_with_large_windows_ends_where_most_packets_are_overtaken(
    switch: Engine, marked_from: int | None
) -> None:
    """11 workers with windows of 512, below four tiers whose links hold up 30 % of what they carry."""
    scenario = draw_scenario(95968)
    links = scenario.links.model_copy(update={"ecn_bytes": marked_from})
    drawn = replace(scenario, links=links)
    work = scenario.later[2].work
    shorter = replace(work, elements=tuple(count // 2 for count in work.elements))
    alone = replace(drawn, jobs=(shorter,), later=(), regrants=(), strangers=0.0)
    outcome = run_scenario(sized(alone, drawn), switch)
    assert not outcome.violations
    assert outcome.packet_hops < sized(300_000, 1_000_000)


# -- many of them


def test_who_interrupts_a_soak_twice_does_not_keep_it_from_its_end() -> None:
    def interrupt(_so_far: Soak) -> None:
        raise KeyboardInterrupt

    usual = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(KeyboardInterrupt):
            soak(1, 3, interrupt)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, usual)


def test_a_soak_sums_up_its_scenarios_and_writes_them_down(tmp_path: Path) -> None:
    told: list[int] = []
    done = soak(10, 3, lambda so_far: told.append(so_far.scenarios))
    done.write(tmp_path)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert told == [1, 2, 3]
    assert summary["scenarios"] == 3
    assert summary["violations"] == 0
    assert summary["packet_hops"] == done.packet_hops > 0
    assert summary["faults"] == dict(done.faults)
    assert summary["seconds"] > 0


def test_an_error_of_the_program_itself_names_the_seed(
    switch: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "_switch", switch, raising=False)
    monkeypatch.setattr(campaign, "_protocol", protocol_of(OURS), raising=False)
    monkeypatch.setattr(campaign, "run_scenario", lambda *_, **__: {}["a slip"])
    with pytest.raises(KeyError) as told:
        campaign._run_seed(7)
    assert pickle.loads(pickle.dumps(told.value)).__notes__ == ["while it ran the scenario of seed 7"]


def test_a_trace_has_a_line_for_each_packet_that_arrives(switch: Engine) -> None:
    scenario = Scenario(1, (Work(window=1, elements=(64,)),))
    text = io.StringIO()
    outcome = run_scenario(scenario, switch, observer=Trace(text, scenario))
    lines = text.getvalue().splitlines()
    assert len(lines) == outcome.packet_hops == 8
    assert "h1 > leaf1" in lines[0]
    assert "update lease 1 chunk 0 slot 0 version 0" in lines[0]
    assert "result lease 1 chunk 1 slot 0 version 1" in lines[-1]
