"""The dashboard tells pages what the network does, and its page shows it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from fanin.browser.dashboard import _Loads, dashboard, interface_bytes, network_document, state_of
from fanin.browser.server import MOST_IDLE, serving
from fanin.testbed.monitoring.snapshot import LinkView, Snapshot, SwitchView
from fanin.topologies.model import Topology
from fanin.topologies.shapes import leaf_spine
from tests.browser.chromium import chromium, keep_screenshot
from tests.testbed.monitoring.snapshots import NOW, job, waiting, worker

TOPOLOGY = leaf_spine(1, 2, 1, rate=10**9)
NET_DEV = """\
Inter-|   Receive                            |  Transmit
 face |bytes    packets errs drop multicast  |bytes    packets errs drop
    lo:       0       0    0    0    0    0    0    0        0       0    0    0    0    0    0    0
leaf1-eth1: 123456     100    0    0    0    0    0    0   654321     200    0    0    0    0    0    0
"""


def link(sender: str, receiver: str, **changes: Any) -> LinkView:
    known: dict[str, Any] = {"rate": 10**9, "built_rate": 10**9, "up": True, "packets": 0, "bytes": 0}
    return LinkView(sender=sender, receiver=receiver, **{**known, "lost": 0, "queue_bytes": 0, **changes})


def snapshot(at: float = NOW, **changes: Any) -> Snapshot:
    """Return a look at TOPOLOGY; `changes` are parts of it, and of `links`, by sender and receiver."""
    links = changes.pop("links", {})
    ends = [(a, b) for one in TOPOLOGY.links for a, b in ((one.a.node, one.b.node), (one.b.node, one.a.node))]
    parts: dict[str, Any] = {
        "jobs": (),
        "forming": (),
        "switches": {name: SwitchView(slots=4, received=40) for name in ("leaf1", "leaf2", "spine1")},
        "links": tuple(link(*pair, **links.get(pair, {})) for pair in ends),
    }
    return Snapshot(at=at, **{**parts, **changes})


STANDING = snapshot(jobs=(job(worker("h1", 7, waiting(8)), worker("h2", 7, heard=20)),))


def test_the_kernel_counts_bytes_of_each_interface() -> None:
    assert interface_bytes(NET_DEV) == {"lo": (0, 0), "leaf1-eth1": (123456, 654321)}


def test_a_quiet_network_has_no_alarms() -> None:
    state = state_of(snapshot(), snapshot(NOW - 1))
    assert state["alarms"] == []
    assert state["switches"]["leaf1"] == {"slots": 4, "packets": 0, "drops": {}, "error": ""}
    assert len(state["links"]) == 2 * len(network_document(TOPOLOGY)["links"])


@pytest.mark.parametrize(
    ("changes", "alarm"),
    [
        ({"links": {("leaf1", "spine1"): {"up": False}}}, "leaf1 – spine1: the link is down"),
        (
            {"links": {("leaf1", "spine1"): {"rate": 10**8}}},
            "leaf1 → spine1: 10% of the rate that it was built with",
        ),
        ({"links": {("h1", "leaf1"): {"lost": 40}}}, "h1 → leaf1: loses 20 packets a second"),
        ({"links": {("h1", "leaf1"): {"bytes": 249_000_000}}}, "h1 → leaf1: full"),
        ({"switches": {"leaf1": SwitchView(slots=4, error="leaf1 has gone")}}, "leaf1: leaf1 has gone"),
        ({"jobs": STANDING.jobs}, "train: waits for h2, for 6 s"),
    ],
)
def test_what_is_wrong_is_an_alarm(changes: dict[str, Any], alarm: str) -> None:
    assert state_of(snapshot(**changes), snapshot(NOW - 2))["alarms"] == [alarm]


def test_drops_have_their_reason_and_rate() -> None:
    then, now = ({"leaf1": SwitchView(slots=4, received=n, drops={"MISMATCH": n})} for n in (10, 30))
    state = state_of(snapshot(switches=now), snapshot(NOW - 2, switches=then))
    assert state["switches"]["leaf1"] == {
        "slots": 4,
        "packets": 10,
        "drops": {"MISMATCH": [30, 10]},
        "error": "",
    }


def test_a_worker_that_others_wait_for_is_late() -> None:
    (found,) = state_of(STANDING, None)["jobs"]
    assert [(each["host"], each["late"], each["part"]) for each in found["workers"]] == [
        ("h1", False, 0.0),
        ("h2", True, None),
    ]


class Inspector:
    """Finds the same at each look, after an error."""

    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> Snapshot:
        self.looks += 1
        if self.looks == 1:
            raise OSError("a switch has just ended")
        return STANDING


def served(inspector: Any, do: Callable[[str], Awaitable[None]], topology: Topology = TOPOLOGY) -> None:
    async def run() -> None:
        async with serving([dashboard(topology, inspector)], socket.create_server(("127.0.0.1", 0))) as url:
            await do(url)

    asyncio.run(run())


def connected(url: str, origin: str) -> connect:
    return connect(url.replace("http", "ws", 1) + "live", origin=origin)  # type: ignore[arg-type]


async def read_until(page: ClientConnection, key: str) -> Any:
    while key not in (news := json.loads(await page.recv())):
        pass
    return news[key]


def test_a_page_gets_the_network_its_state_and_loads() -> None:
    inspector = Inspector()

    async def read(url: str) -> None:
        own = url.removesuffix("/dashboard/")
        async with connected(url, own) as page, connected(url, own) as other:
            assert await read_until(page, "network") == network_document(TOPOLOGY)
            assert len(await read_until(page, "load")) == 2 * len(TOPOLOGY.links)
            assert (await read_until(page, "state"))["alarms"] == ["train: waits for h2, for 6 s"]
            assert (await read_until(other, "state"))["jobs"][0]["name"] == "train"

    served(inspector, read)
    assert inspector.looks >= 2


def test_nobody_is_looked_at_for_nobody_and_strangers_are_refused() -> None:
    inspector = Inspector()

    async def refuse(url: str) -> None:
        with pytest.raises(InvalidStatus, match="403"):
            async with connected(url, "http://elsewhere.example"):
                pass

    served(inspector, refuse)
    assert inspector.looks == 0


def gone(client: socket.socket) -> bool:
    """Wait until the server has closed a connection; fail if it does not."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_silent_clients_make_room_for_others() -> None:
    """The oldest connections are closed, and a page is still served."""

    async def crowd(url: str) -> None:
        port = int(url.split(":")[2].partition("/")[0])
        with ExitStack() as stack:
            for _ in range(4 * MOST_IDLE):
                silent = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port), 60)
                found.append(stack.enter_context(silent))
            async with connected(url, url.removesuffix("/dashboard/")) as page:
                assert await read_until(page, "network")
            closed = await asyncio.to_thread(lambda: [gone(each) for each in found[: 2 * MOST_IDLE]])
            assert all(closed)

    found: list[socket.socket] = []
    served(Inspector(), crowd)


@pytest.mark.slow
def test_the_page_shows_alarms_workers_and_switches() -> None:
    async def show(url: str) -> None:
        with chromium() as browser:
            await asyncio.to_thread(browser.get, url)
            await asyncio.to_thread(_look_at, browser)

    served(Inspector(), show)


@pytest.mark.slow
def test_rates_of_links_do_not_cover_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where they would, pointing at a line shows its rate."""
    topology = leaf_spine(2, 2, 4, 10**8)
    monkeypatch.setattr(_Loads, "take", lambda *_: [56_700_000] * (2 * len(topology.links)))

    class Blind:
        """Knows only the loads of links, which it does not count."""

        async def look(self) -> Snapshot:
            raise OSError("no switch answers")

    def look_at(browser: Any) -> None:
        from selenium.webdriver.support.wait import WebDriverWait

        rates = "[...document.querySelectorAll('text.rate')].filter(text => text.textContent.trim())"
        WebDriverWait(browser, 60).until(lambda _: browser.execute_script(f"return {rates}.length"))
        keep_screenshot(browser, "dashboard-loads")
        covered = f"""const boxes = {rates}.map(text => text.getBoundingClientRect());
            return boxes.filter((a, i) => boxes.some((b, j) => i < j && a.left < b.right && b.left < a.right
                && a.top + 3 < b.bottom && b.top + 3 < a.bottom)).length"""
        assert browser.execute_script(covered) == 0
        assert browser.execute_script(f"return {rates}.length") > 4  # between the switches
        titles = "return [...document.querySelectorAll('.network title')].map(each => each.textContent)"
        assert "h1 → leaf1: 57 Mb/s" in browser.execute_script(titles)

    async def show(url: str) -> None:
        with chromium() as browser:
            await asyncio.to_thread(browser.get, url)
            await asyncio.to_thread(look_at, browser)

    served(Blind(), show, topology)


def _look_at(browser: Any) -> None:
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.support.wait import WebDriverWait

    text = "return document.body.textContent"
    WebDriverWait(browser, 60).until(lambda _: "waits for h2" in browser.execute_script(text))
    assert (
        browser.execute_script("return document.querySelector('.alarms').textContent")
        == "train: waits for h2, for 6 s"
    )
    rows = browser.execute_script(
        "return [...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert rows[:2] == [["h1", "7 + 0 %", "–", "1.0 ms", "0"], ["h2 (late)", "7", "–", "1.0 ms", "0"]]
    assert rows[2] == ["leaf1", "–", "4", "none"]
    marks = "return [...document.querySelectorAll('.node.bad')].map(node => node.textContent)"
    assert browser.execute_script(marks) == ["h2"]
    assert browser.get_log("browser") == []
    keep_screenshot(browser, "dashboard")
    # Every button is reached by Tab, and a projector shows everything without scrolling.
    size = {"width": 1920, "height": 1080, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    focused = "return document.activeElement.getAttribute('aria-label')"
    reached = set()
    for _ in range(4):
        ActionChains(browser).send_keys(Keys.TAB).perform()
        reached.add(browser.execute_script(focused))
    assert {"Keys", "Use dark colours"} <= reached
    page = "document.documentElement"
    over = f"return Math.max({page}.scrollWidth - innerWidth, {page}.scrollHeight - innerHeight)"
    assert browser.execute_script(over) <= 0
    keep_screenshot(browser, "dashboard-projector")
    ActionChains(browser).send_keys("d").perform()
    assert browser.execute_script(f"return {page}.dataset.theme") == "dark"
    keep_screenshot(browser, "dashboard-dark-projector")
