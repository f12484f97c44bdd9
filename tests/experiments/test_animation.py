"""An animation shows each packet of one all-reduce when the run has it, on one clock for all points."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fanin.experiments import animation
from fanin.experiments.animation import AnimationError, draw
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.scenario.settings import Settings
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import PacketRecording, record
from fanin.p4switch.engine.engine import Engine

SCENARIO = Path(__file__).parents[2] / "scenarios/in-network-and-ring.toml"
SVG = "{http://www.w3.org/2000/svg}"
CHUNKS, HOSTS = 16, 4
ROUNDING = 1e-12  # seconds
DELAY, RATE = 1e-6, 10e9  # of each link: seconds, bits/s


def points(*changes: str) -> dict[str, Settings]:
    return {point.algorithm: point for point in load_scenario(SCENARIO, changes).points}


@pytest.fixture(scope="module")
def scenes(program: Engine) -> dict[str, PacketRecording]:
    return {name: record(name, settings, program).last_all_reduce() for name, settings in points().items()}


@pytest.fixture(scope="module")
def program() -> Engine:
    from fanin.simulator.fabric import load_switch

    return load_switch()


def test_each_worker_sends_its_values_once_and_receives_the_sums_once(
    scenes: dict[str, PacketRecording],
) -> None:
    flights = scenes["in-network"].flights
    up = Counter((flight.sender, flight.receiver) for flight in flights if flight.kind == "values")
    down = Counter((flight.sender, flight.receiver) for flight in flights if flight.kind == "sums")
    leaves = {"leaf1": ("h1", "h2"), "leaf2": ("h3", "h4")}
    ways = [
        ("leaf1", "spine1"),
        ("leaf2", "spine1"),
        *((h, leaf) for leaf, hosts in leaves.items() for h in hosts),
    ]
    assert up == dict.fromkeys(ways, CHUNKS)
    assert down == {(b, a): CHUNKS for a, b in ways}
    assert {flight.kind for flight in flights} == {"values", "sums"}


def test_a_ring_sends_between_workers_and_acknowledges(scenes: dict[str, PacketRecording]) -> None:
    flights = scenes["ring"].flights
    assert {flight.kind for flight in flights} == {"between hosts", "acknowledgements"}
    sent = sum(flight.kind == "between hosts" and flight.sender.startswith("h") for flight in flights)
    # 2 (n - 1) quarters of the vector from each: 4,000 bytes in 4 packets of up to 1,024. While the first worker
    # begins, others may still send their last packet of the barrier before.
    assert 0 <= sent - HOSTS * 2 * (HOSTS - 1) * 4 < HOSTS


@pytest.mark.parametrize("algorithm", ["in-network", "ring"])
def test_the_drawing_and_the_results_agree_on_the_time(
    scenes: dict[str, PacketRecording], program: Engine, algorithm: str
) -> None:
    assert scenes[algorithm].seconds == pytest.approx(
        run_virtual(points()[algorithm], program).seconds[-1], rel=1e-12
    )


def test_a_packet_takes_its_serialization_and_the_delay_of_the_link(
    scenes: dict[str, PacketRecording],
) -> None:
    for scene in scenes.values():
        for flight in scene.flights:
            assert flight.joined <= flight.begin < flight.sent < flight.end < scene.seconds + ROUNDING
    values = [flight for flight in scenes["in-network"].flights if flight.kind == "values"]
    full = max(flight.end - flight.begin for flight in values)
    assert full == pytest.approx(DELAY + 8 * 1104 / RATE, rel=1e-3)  # 1,104 bytes: 256 values, on the wire


def drawn(*scenes: PacketRecording, seconds: float = 10) -> ElementTree.Element:
    return ElementTree.fromstring(draw(scenes, seconds))


def test_every_packet_moves_once_in_each_round(scenes: dict[str, PacketRecording]) -> None:
    root = drawn(*scenes.values())
    circles = [circle for circle in root.iter(f"{SVG}circle") if circle.get("class", "").startswith("packet")]
    assert len(circles) == sum(len(scene.flights) for scene in scenes.values())
    for moving in root.iter():
        if (times := moving.get("keyTimes")) is not None:
            shares = [float(share) for share in times.split(";")]
            assert shares == sorted(shares)
            assert 0 <= shares[0] <= shares[-1] <= 1
            assert len(moving.get("values", moving.get("keyPoints", "")).split(";")) == len(shares)
            assert moving.get("dur") == "12s"  # with the two seconds before it begins again


def test_all_panels_have_one_clock(scenes: dict[str, PacketRecording]) -> None:
    """An all-reduce that takes three times as long ends three times as late in the drawing."""
    root = drawn(*scenes.values())
    ends = {
        scene.title: float(re.findall(r"[\d.]+", text[0].get("keyTimes", ""))[-1])
        for scene, text in zip(
            scenes.values(),
            (element for element in root.iter(f"{SVG}text") if element.get("class") == "text end"),
            strict=True,
        )
    }
    early = -min(flight.begin for scene in scenes.values() for flight in scene.flights)
    passed = {name: scene.seconds + early for name, scene in scenes.items()}
    assert ends["ring"] / ends["in-network"] == pytest.approx(passed["ring"] / passed["in-network"], rel=1e-3)


def test_texts_from_outside_are_escaped(scenes: dict[str, PacketRecording]) -> None:
    hostile = replace(scenes["ring"], title="</text><script>alert(1)</script>\x1b[31m")
    root = drawn(hostile)
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in draw([hostile], 10)


def test_too_many_packets_are_refused(
    scenes: dict[str, PacketRecording], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(animation, "MOST_FLIGHTS", 300)
    with pytest.raises(AnimationError, match="566 packets on links are too many for one drawing"):
        draw([*scenes.values()], 10)
