"""The theatre plays a recording without a server, and what it shows agrees with the run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Keys

from fanin.browser.theatre import theatre_page
from fanin.experiments.scenario.file import load_scenario
from fanin.experiments.virtual.point import run_virtual
from fanin.experiments.virtual.recording import Flight, PacketRecording, record
from fanin.experiments.virtual.recording_document import recording_document
from fanin.simulator.fabric import load_switch
from tests.browser.chromium import chromium, keep_screenshot

SCENARIO = Path(__file__).parents[2] / "scenarios/in-network-and-ring.toml"
POINTS = load_scenario(SCENARIO, ["loss=0.01"]).points
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recordings() -> list[PacketRecording]:
    switch = load_switch()
    return [record(point.algorithm, point, switch).last_all_reduce() for point in POINTS]


@pytest.fixture(scope="module")
def page(recordings: list[PacketRecording], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("theatre") / "theatre.html"
    path.write_text(theatre_page(recording_document("two", "A ring and the network", recordings)))
    return path


class _Loaded(HTMLParser):
    """Collects what a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        self.found += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_file_loads_nothing(page: Path) -> None:
    loaded = _Loaded()
    loaded.feed(page.read_text())
    assert loaded.found == ["data:,"]
    assert "default-src 'none'" in page.read_text()


def test_texts_of_a_recording_stay_texts(recordings: list[PacketRecording]) -> None:
    document = recording_document(HOSTILE, HOSTILE, [replace(recordings[0], title=HOSTILE)])
    text = theatre_page(document)
    loaded = _Loaded()
    loaded.feed(text)
    assert (loaded.found, loaded.scripts) == (["data:,"], 2)
    assert "\x1b" not in text
    (found,) = re.findall(r'id="recording">(.*?)</script>', text)
    assert json.loads(found) == json.loads(json.dumps(document))


# -- in a browser ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[Any]:
    with chromium(calm=True) as found:
        found.get(page.as_uri())
        yield found


def until_shown(browser: Any) -> None:
    """Wait until the page has drawn what an event changed, and has run what comes after drawing."""
    browser.execute_async_script(
        "requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(arguments[0])))"
    )


def go_to(browser: Any, part: float) -> None:
    """Move the time bar; 0 is the beginning, and 1 the end."""
    browser.execute_script(
        """const bar = document.querySelector("input[type=range]");
        bar.value = Number(bar.min) + arguments[0] * (bar.max - bar.min);
        bar.dispatchEvent(new Event("input", {bubbles: true}));""",
        part,
    )
    until_shown(browser)


def texts(browser: Any, selector: str) -> list[str]:
    found: list[str] = browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map(each => each.textContent)", selector
    )
    return found


def press(browser: Any, key: str) -> None:
    browser.execute_script(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key
    )
    until_shown(browser)


def test_a_reader_who_wants_less_motion_starts_it_himself(browser: Any) -> None:
    assert browser.execute_script("return document.querySelector('.play').ariaLabel") == "Play"
    press(browser, " ")
    assert browser.execute_script("return document.querySelector('.play').ariaLabel") == "Pause"
    press(browser, " ")


def test_times_and_counts_are_those_of_the_run(browser: Any, recordings: list[PacketRecording]) -> None:
    go_to(browser, 1)
    switch = load_switch()
    for shown, point, recording in zip(texts(browser, ".status"), POINTS, recordings, strict=True):
        seconds = run_virtual(point, switch).seconds[-1]
        assert f"done after {1e6 * seconds:.2f} µs" in shown
        sent = [one for one in recording.flights if one.lost != "queue drop" and one.again != "copy"]
        lost = sum(bool(one.lost) for one in recording.flights)
        again = sum(one.again == "retransmission" for one in recording.flights)
        assert f"{len(sent)} packets on links · {lost} lost · {again} retransmitted" in shown
    assert browser.get_log("browser") == []
    keep_screenshot(browser, "theatre-end")


def test_a_step_goes_to_the_next_time_at_which_something_happens(
    browser: Any, recordings: list[PacketRecording]
) -> None:
    moments = {
        round(time * 1e12) for one in recordings for each in one.flights for time in (each.begin, each.end)
    }
    moments |= {
        round(time * 1e12) for one in recordings for call in one.calls for time in (call.begin, call.end)
    }
    press(browser, "Home")
    for _ in range(3):
        press(browser, "ArrowRight")
    value = "return Number(document.querySelector('input[type=range]').value)"
    assert browser.execute_script(value) == pytest.approx(sorted(moments)[3], abs=1)
    press(browser, "ArrowLeft")
    assert browser.execute_script(value) == pytest.approx(sorted(moments)[2], abs=1)


def test_slow_motion_tells_what_is_lost_and_when_it_comes_again(
    browser: Any, recordings: list[PacketRecording]
) -> None:
    press(browser, "Home")
    press(browser, "l")
    press(browser, "ArrowRight")
    (caption,) = texts(browser, ".caption")
    first = min((one for each in recordings for one in each.flights if one.lost), key=lambda one: one.begin)
    assert f"from {first.sender} to {first.receiver} is lost (loss)" in caption
    keep_screenshot(browser, "theatre-loss")


def test_slots_and_packets_are_on_the_canvas(browser: Any) -> None:
    """While packets are under way, the canvas has the colours of values and of sums, and none at the beginning."""
    go_to(browser, 0)
    assert pixels(browser, "--series-1", 0) == 0
    go_to(browser, 0.1)
    assert pixels(browser, "--series-1", 0) > 100  # values
    assert pixels(browser, "--good", 0) > 100  # sums
    assert pixels(browser, "--series-2", 1) > 100  # values between workers
    keep_screenshot(browser, "theatre-light")


def test_a_cross_fades_when_all_that_was_lost_there_has_been_replaced(tmp_path: Path) -> None:
    (point, _) = load_scenario(SCENARIO, ["loss=0.1"]).points
    recording = record(point.algorithm, point, load_switch()).last_all_reduce()

    def what(one: Flight) -> tuple[str, str, str, int, str]:
        return one.sender, one.receiver, one.stream, one.number, one.kind

    last = {what(one): one.begin for one in sorted(recording.flights, key=lambda one: one.begin)}
    # Some retransmissions are lost that were no longer needed. Nothing replaces them.
    flights = [one for one in recording.flights if not one.lost or one.begin < last[what(one)]]
    lost = Counter((one.sender, one.receiver) for one in flights if one.lost)
    assert (
        max(lost.values()) > 3
    )  # so many faint crosses on each other would look like one that has not faded
    path = tmp_path / "theatre.html"
    path.write_text(theatre_page(recording_document("one", "", [replace(recording, flights=flights)])))
    with chromium(calm=True) as browser:
        browser.get(path.as_uri())
        go_to(browser, 0.2)
        assert pixels(browser, "--bad", 0) > 0
        go_to(browser, 1)
        assert pixels(browser, "--bad", 0) == 0


def pixels(browser: Any, colour: str, stage: int) -> int:
    """Return how many pixels of the canvas of a point have one of the page's colours, and are not faint."""
    count = """const [name, stage] = arguments;
        const canvas = document.querySelectorAll(".stage canvas")[stage];
        const probe = document.createElement("canvas").getContext("2d");
        probe.fillStyle = getComputedStyle(canvas).getPropertyValue(name);
        const wanted = [1, 3, 5].map(at => parseInt(probe.fillStyle.slice(at, at + 2), 16));
        const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
        let found = 0;
        for (let at = 0; at < data.length; at += 4)
            found += data[at + 3] > 140 && wanted.every((part, i) => Math.abs(data[at + i] - part) < 4);
        return found"""
    found: int = browser.execute_script(count, colour, stage)
    return found


def test_everything_is_reached_by_keys_and_has_a_name(browser: Any) -> None:
    nameless = """return [...document.querySelectorAll("button, select, input, [role=button]")].filter(each =>
        !(each.ariaLabel || each.textContent.trim() || each.closest("label")?.textContent.trim())).length"""
    assert browser.execute_script(nameless) == 0
    for label in texts(browser, "section.point h2"):
        assert browser.execute_script(
            "return document.querySelector(`[aria-label='${arguments[0]}']`) !== null", label
        )
    focused = "return document.activeElement.matches('.node') && document.activeElement.textContent"
    while browser.execute_script(focused) != "h2":
        ActionChains(browser).send_keys(Keys.TAB).perform()
        assert browser.execute_script("return document.activeElement !== document.body")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    assert texts(browser, "select :checked")[-1] == "h2"
    press(browser, "Escape")
    press(browser, "?")
    assert "to the next lost packet" in texts(browser, "dialog[open]")[0]
    browser.execute_script("document.querySelector('dialog').close()")


def test_it_fits_a_window_of_1280_and_a_projector(browser: Any) -> None:
    overflow = """const root = document.documentElement;
        return [root.scrollWidth - root.clientWidth, root.scrollHeight - root.clientHeight]"""
    for width, height in ((1280, 720), (1024, 768), (1920, 1080)):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert browser.execute_script(overflow) == [0, 0], (width, height)
    press(browser, "d")
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    keep_screenshot(browser, "theatre-dark-projector")
