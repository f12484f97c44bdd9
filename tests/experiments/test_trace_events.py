"""A trace has what the format asks for, and agrees with the results of the run."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.trace_events import trace_events
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import record
from fanin.p4switch.engine.engine import Engine
from fanin.simulator.fabric import load_switch

SCENARIO = Path(__file__).parents[2] / "scenarios/in-network-and-ring.toml"
PICOSECOND = 1e-6  # microseconds, in which the events' times are

Event = dict[str, Any]


def point(*changes: str) -> Settings:
    (found,) = load_scenario(SCENARIO, changes).points
    return found


@pytest.fixture(scope="module")
def program() -> Engine:
    return load_switch()


def traced(program: Engine, *points: Settings) -> list[Event]:
    """Return the events of a trace, as a program reads them from the file."""
    document = json.loads(json.dumps(trace_events([record(one.algorithm, one, program) for one in points])))
    events: list[Event] = document["traceEvents"]
    return events


def tracks(events: list[Event], category: str) -> dict[tuple[int, int], list[Event]]:
    found = defaultdict(list)
    for event in events:
        if event.get("cat") == category:
            found[event["pid"], event["tid"]].append(event)
    return found


def names(events: list[Event], what: str) -> dict[tuple[int, int], str]:
    found = [event for event in events if event["ph"] == "M" and event["name"] == what]
    assert len({(event["pid"], event["tid"]) for event in found}) == len(found)
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in found}


def test_every_event_has_what_the_format_asks_for(program: Engine) -> None:
    events = traced(program, point("algorithm=in-network"), point("algorithm=ring"))
    for event in events:
        assert event["ph"] in ("X", "M")  # no queue drops a packet: see below
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] > 0
    processes = names(events, "process_name")
    groups = ("workers", "buckets", "links")
    slots = [f"in-network: slots of {switch}" for switch in ("leaf1", "leaf2", "spine1")]
    found = [*processes.values()]
    assert found[:3] + found[-3:] == [f"{run}: {what}" for run in ("in-network", "ring") for what in groups]
    assert sorted(found[3:-3]) == slots
    threads = names(events, "thread_name")
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] == "X"} == threads.keys()
    assert threads[1, 1] == "worker 0 on h1"
    assert {"h1 → leaf1", "leaf1 → h1", "leaf2 → spine1"} <= {*threads.values()}


@pytest.mark.parametrize(
    "changes",
    [
        ("algorithm=in-network",),
        ("algorithm=ring",),
        ("algorithm=ring", "jitter=3 us"),
        ("algorithm=in-network", "reordering=0.2", "displacement=2 us", "duplication=0.1", "loss=0.05"),
    ],
)
def test_a_track_shows_one_thing_at_a_time(program: Engine, changes: tuple[str, ...]) -> None:
    events = traced(program, point(*changes))
    for category in ("call", "packet", "bucket", "slot"):
        for track in tracks(events, category).values():
            assert all(a["ts"] + a["dur"] <= b["ts"] + PICOSECOND / 2 for a, b in pairwise(track))
    for packets in tracks(events, "packet").values():
        assert all(one["ts"] + one["dur"] <= one["args"].get("arrives", inf) for one in packets)


def test_buckets_last_from_the_first_call_to_the_last_result_and_slots_hold_their_chunks(
    program: Engine,
) -> None:
    settings = point("algorithm=in-network", "step_forward=10 us", "step_backward=20 us", "step_bucket=8 kB")
    events = traced(program, settings)
    threads, calls = names(events, "thread_name"), tracks(events, "call")
    sums = tracks(events, "bucket")
    assert [threads[key] for key in sums] == [f"bucket {number + 1}" for number in range(len(sums))]
    assert len(sums) > 1
    for number, (one, *_) in enumerate(sums.values(), start=1):
        mine = [
            call for track in calls.values() for call in track if call["name"].endswith(f"bucket {number}")
        ]
        first = [call for call in mine if call["args"]["repetition"] == 1]
        assert one["ts"] == min(call["ts"] for call in first)
        assert one["ts"] + one["dur"] == pytest.approx(max(call["ts"] + call["dur"] for call in first))
    held = tracks(events, "slot")
    assert len({process for process, _ in held}) == 3  # switches
    for track in held.values():
        states = defaultdict(list)
        for one in track:
            states[one["name"].partition(":")[0]].append(one)
        for same in states.values():
            children = [one["args"]["children"] for one in same]
            assert children == sorted(children)
            assert same[-1]["name"].endswith(": result")


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_links_are_busy_for_as_long_as_in_the_results(program: Engine, algorithm: str) -> None:
    settings = point(f"algorithm={algorithm}", "size=250 kB")
    events = traced(program, settings)
    threads = names(events, "thread_name")
    busy = {threads[key]: sum(one["dur"] for one in track) for key, track in tracks(events, "packet").items()}
    usage = run_virtual(settings, program).usage
    assert usage is not None
    measured = {
        f"{link.near} → {link.far}": link for link in usage.links if link.phase == "job" and link.packets
    }
    assert len(events) > 3000  # more than a drawing has
    assert busy.keys() == measured.keys()
    for name, link in measured.items():
        # A packet's time is a whole number of picoseconds.
        assert busy[name] == pytest.approx(1e6 * link.busy_seconds, abs=PICOSECOND * link.packets)


def test_lost_and_dropped_packets_say_so(program: Engine) -> None:
    settings = point("algorithm=parameter-server", "size=32 kB", "queue_bytes=10 kB", "loss=0.02")
    events = traced(program, settings)
    usage = run_virtual(settings, program).usage
    assert usage is not None
    drops = [one["name"] for one in events if one["ph"] == "i"]
    assert {*drops} <= {"between hosts: queue drop", "acknowledgements: queue drop"}
    assert 0 < len(drops) == sum(link.queue_drops for link in usage.links)
    lost = [
        one["args"] for track in tracks(events, "packet").values() for one in track if "lost" in one["args"]
    ]
    assert {one["lost"] for one in lost} == {"loss"}
    assert len(lost) == sum(link.lost for link in usage.links)
    assert not any("arrives" in one for one in lost)


def test_buckets_and_barriers_have_names(program: Engine) -> None:
    changes = "algorithm=in-network", "step_forward=10 us", "step_backward=20 us", "step_bucket=8 kB"
    calls = tracks(traced(program, point(*changes)), "call")
    wanted = ["barrier", "all-reduce, bucket 1", "all-reduce, bucket 2"] * 2
    assert [[call["name"] for call in track] for track in calls.values()] == [wanted] * 4
