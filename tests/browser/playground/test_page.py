"""The playground in a browser, as its readers use it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select, WebDriverWait

from fanin.p4compiler import compile_file
from fanin.p4switch.stf.run import run_stf
from fanin.testbed.patience import setting
from tests.browser.chromium import chromium, keep_screenshot

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("playground")]

ROOT = Path(__file__).parents[3]
FIREWALL = ROOT / "examples" / "own-program" / "firewall.p4"


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    with chromium() as found:
        yield found


@pytest.fixture
def picture(browser: Chrome) -> Callable[..., None]:
    """`picture(name, width, height)` keeps what a page looks like in a window of that size, for people to look at."""

    def take(name: str, width: int, height: int) -> None:
        show_in(browser, width, height)
        frames = "const done = arguments[0]; const next = requestAnimationFrame; "
        browser.execute_async_script(f"{frames}next(() => next(() => next(() => setTimeout(done, 100))))")
        keep_screenshot(browser, name)

    return take


def show_in(browser: Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address that the command prints."""
    command = [sys.executable, "-m", "fanin", "play", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


class Reader:
    """Somebody who looks at the page and types."""

    def __init__(self, chromium: Chrome, address: str) -> None:
        self.chromium = chromium
        self.address = address

    def open(self, fragment: str = "") -> None:
        self.chromium.get("about:blank")
        show_in(self.chromium, 1280, 900)
        self.chromium.get(f"{self.address}#{fragment}")
        self.wait(lambda: self.texts(".step"))

    def wait(self, condition: Callable[[], object]) -> None:
        WebDriverWait(self.chromium, 60 * setting()).until(lambda _: condition())

    def all(self, selector: str) -> list[WebElement]:
        return self.chromium.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.chromium.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText ?? each.textContent)"
        found: list[str] = self.chromium.execute_script(script, selector)
        return found

    def button(self, text: str) -> WebElement:
        (found,) = (each for each in self.all("button") if each.text == text and each.is_displayed())
        return found

    def press(self, *keys: str) -> None:
        ActionChains(self.chromium).send_keys(*keys).perform()

    def verdicts(self) -> list[str]:
        return self.texts(".packets .verdict")

    def change(self, field: WebElement, text: str) -> None:
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.TAB)


@pytest.fixture
def reader(browser: Chrome, address: str) -> Iterator[Reader]:
    """A reader, to whom no page may show anything that the browser complains about."""
    browser.get_log("browser")
    yield Reader(browser, address)
    assert [each["message"] for each in browser.get_log("browser") if each["level"] == "SEVERE"] == []


def test_a_packet_is_followed_with_the_keys(reader: Reader, picture: Callable[..., None]) -> None:
    reader.open("program=firewall")
    assert reader.verdicts() == ["→ 1", "dropped", "dropped", "→ 2"]
    reader.press(*[Keys.ARROW_RIGHT] * 13)
    reader.wait(lambda: reader.texts(".graph .current text") == ["allowed"])
    assert reader.texts(".step[aria-current=step]")[0].splitlines()[0] == "table ingress.allowed: hit"
    reader.wait(
        lambda: reader.texts(".cm-step") == ["    table allowed {"]
    )  # the editor follows a frame later
    assert "destination\n53" in "\n".join(reader.texts(".values dl div"))
    reader.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert reader.texts(".values .changed") == ["egress_spec\n1"]
    reader.press(Keys.END)
    assert reader.texts(".step[aria-current=step]") == ["out of port 1: 42 bytes"]
    reader.press(Keys.ARROW_DOWN, Keys.END)
    assert reader.texts(".step[aria-current=step]")[0].startswith("drop: ")
    for theme in ("light", "dark"):
        for width, height in ((1280, 800), (1920, 1080)):
            picture(f"play-steps-{theme}-{width}", width, height)
        reader.press("d")


def test_members_of_a_selector_are_a_tree_and_can_be_changed(
    reader: Reader, picture: Callable[..., None]
) -> None:
    reader.open("program=balancer")
    chosen = "ingress.to_server(address={}, port={})"
    assert set(reader.verdicts()[:4]) <= {"→ 1", "→ 2", "→ 3"}
    while not reader.texts(".choice"):
        reader.press(Keys.ARROW_RIGHT)
    assert reader.texts(".choice h3") == ["Group 0"]
    assert [chosen.format("10.0.1.1", 1) in each for each in reader.texts(".choice li")] == [True, False]
    assert len(reader.texts(".choice li[aria-current=true]")) == 1
    picture("play-selector", 1280, 800)
    reader.press("t")
    picture("play-profiles", 1280, 800)
    # A member with a large weight is chosen for each flow.
    reader.change(reader.one("input[title^='Numbers of members']"), "0*1000, 1")
    reader.wait(lambda: reader.verdicts() == ["→ 1", "→ 1", "→ 1", "→ 3", "dropped"])
    # Without the first member, the group has one, and the entry for the third refers to member 1.
    reader.one("[aria-label='Remove member 0']").click()
    reader.wait(lambda: reader.verdicts() == ["→ 2", "→ 2", "→ 2", "→ 3", "dropped"])
    reader.one("[aria-label='Remove group 0']").click()
    reader.wait(lambda: reader.verdicts() == ["dropped", "dropped", "dropped", "→ 3", "dropped"])


def test_copies_are_a_tree(reader: Reader, picture: Callable[..., None]) -> None:
    reader.open("program=copies")
    reader.press(Keys.ARROW_DOWN)
    tree = reader.texts(".tree button")
    assert tree[0].startswith("packet")
    assert tree[1:] == ["replication · out of port 1: 6 bytes", "replication 1 · out of port 2: 4 bytes"]
    reader.all(".tree button")[2].click()
    assert reader.texts(".step[aria-current=step]") == ["egress to port 2, replica 1 (replication)"]
    assert reader.texts(".network .node text") == ["port 1", "switch", "port 1", "port 2"]
    picture("play-copies", 1280, 800)


def test_errors_are_shown_as_on_the_command_line_and_the_rest_stays(reader: Reader, tmp_path: Path) -> None:
    reader.open("program=firewall")
    reader.one(".cm-content").click()
    ActionChains(reader.chromium).key_down(Keys.CONTROL).send_keys(Keys.END).key_up(Keys.CONTROL).send_keys(
        "header {"
    ).perform()
    reader.wait(lambda: reader.texts(".problems pre"))
    text = FIREWALL.read_text() + "header {"
    (tmp_path / "firewall.p4").write_text(text)
    command = [sys.executable, "-m", "fanin", "compile", "firewall.p4"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False).stderr
    assert "\n".join(reader.texts(".problems pre")).strip() == told.strip()
    assert reader.texts("header .badge") == ["1 error"]
    assert reader.verdicts() == ["→ 1", "dropped", "dropped", "→ 2"]
    reader.press(*[Keys.BACKSPACE] * 20)
    reader.wait(lambda: reader.texts("header .badge") in (["compiled"], ["1 error"]))


def test_an_entry_is_edited_and_a_packet_built_and_the_address_keeps_both(
    reader: Reader, picture: Callable[..., None]
) -> None:
    reader.open("program=firewall")
    reader.press("t")
    picture("play-tables", 1280, 800)
    reader.change(reader.one("input[aria-label='hdr.udp.destination']"), "5005")
    reader.wait(lambda: reader.verdicts() == ["dropped", "→ 1", "dropped", "→ 2"])
    reader.change(reader.one("input[aria-label='hdr.udp.destination']"), "x")
    reader.wait(lambda: "'x' is neither a number nor an address" in "".join(reader.texts("[role=alert]")))
    reader.change(reader.one("input[aria-label='hdr.udp.destination']"), "5005")
    reader.wait(lambda: not reader.all("[role=alert]"))
    reader.button("+ Packet").click()
    fields = {each.text.split()[0]: each for each in reader.all(".packet-dialog .headers label")}
    assert fields["ethertype"].find_element(By.TAG_NAME, "input").get_property("value") == "0x0800"
    ports = [
        each for each in reader.all(".packet-dialog .headers label") if each.text.startswith("destination")
    ]
    reader.change(ports[1].find_element(By.TAG_NAME, "input"), "5005")
    picture("play-packet", 1280, 800)
    reader.change(reader.one(".packet-dialog input.narrow"), "2")
    reader.button("Send").click()
    reader.wait(lambda: reader.verdicts()[4:] == ["→ 1"])
    shared = reader.chromium.current_url.partition("#")[2]
    reader.open(shared)
    reader.wait(lambda: reader.verdicts() == ["dropped", "→ 1", "dropped", "→ 2", "→ 1"])


def test_two_packets_are_compared(reader: Reader, picture: Callable[..., None]) -> None:
    reader.open("program=firewall")
    reader.press("c")
    assert reader.texts(".compare [role=status]") == ["the same steps"]
    Select(reader.all(".compare select")[1]).select_by_index(1)
    reader.wait(lambda: reader.texts(".compare [role=status]") == ["9 steps differ"])
    assert reader.texts(".bytes .different") == ["13", "8d", "00", "35", "00", "35", "13", "8d"]
    assert "table ingress.allowed: miss" in "".join(reader.texts(".compare tr.different td:last-child"))
    picture("play-compare", 1280, 800)


def test_what_is_exported_passes_on_the_command_line(reader: Reader) -> None:
    reader.open("program=firewall")
    reader.button("Export test").click()
    reader.wait(lambda: "expect" in str(reader.one(".export-dialog textarea").get_property("value")))
    text = str(reader.one(".export-dialog textarea").get_property("value"))
    assert run_stf(compile_file(FIREWALL).device_config(), text).differences == []
    assert text.count("\nexpect ") == 2


def test_texts_of_an_address_stay_texts(reader: Reader) -> None:
    hostile = "<img src=x onerror='document.title=1'><script>document.title=1</script>"
    kept = {
        "scenario": {
            "entries": [],
            "groups": {},
            "sessions": {},
            "packets": [{"port": 1, "hex": "00" * 14, "name": hostile}],
        },
        "files": {f"{hostile}.p4": hostile},
    }
    packed = zlib.compress(json.dumps(kept).encode(), wbits=-15)
    changes = base64.urlsafe_b64encode(packed).decode().rstrip("=")
    reader.chromium.get("about:blank")
    reader.chromium.get(f"{reader.address}#program=firewall&changes={changes}")
    reader.wait(lambda: reader.texts("[role=alert]"))
    assert "is no name of a file" in reader.texts("[role=alert]")[0]
    assert reader.texts(".packets .name") == [hostile]
    assert reader.chromium.title == "fanin play"
    assert reader.all("#page img, #page script") == []


def test_a_node_of_the_graph_leads_to_its_line_with_keys_alone(reader: Reader) -> None:
    reader.open("program=firewall")
    reader.press(*[Keys.ARROW_RIGHT] * 13)
    reader.wait(lambda: reader.texts(".graph .current text") == ["allowed"])
    reader.all(".graph-pane .tabs button")[-1].send_keys(Keys.TAB)
    focused = "return document.activeElement.closest('.graph .box')?.ariaLabel"
    while (node := reader.chromium.execute_script(focused)) != "block()":
        assert node
        reader.press(Keys.TAB)
    reader.press(Keys.ENTER)
    script = "return document.querySelector('.cm-activeLine').textContent"
    reader.wait(lambda: reader.chromium.execute_script(script).strip() == "block();")


def test_everything_that_is_used_has_a_name(reader: Reader) -> None:
    reader.open("program=firewall")
    script = """return [...document.querySelectorAll("button, input, select, textarea, svg[role], [role=tablist]")]
        .filter((each) => !each.closest(".cm-editor"))
        .filter((each) => !(each.getAttribute("aria-label") || each.innerText?.trim() || each.closest("label")))
        .map((each) => each.outerHTML)"""
    for key in ("s", "t", "c", "e"):
        reader.press(key)
        assert reader.chromium.execute_script(script) == []
    reader.press(Keys.ESCAPE)
    reader.wait(lambda: not reader.texts("dialog[open]"))
    reader.one(".cm-content").click()
    reader.press(Keys.ESCAPE, Keys.TAB)  # Tab alone would indent
    assert not reader.chromium.execute_script("return document.activeElement.closest('.cm-editor')")
    reader.press("?")
    assert reader.chromium.execute_script(script) == []
    assert "next step" in reader.texts("dialog")[0]
    assert "leave the editor" in reader.texts("dialog")[0]


# Requests from the first that `held` accepts on wait until release(), so that a test decides what is under way.
HOLD = """
window.waiting = [];
window.held = (request) => request.do === "run";
const send = WebSocket.prototype.send;
WebSocket.prototype.send = function (text) {
  if (window.waiting.length || window.held(JSON.parse(text))) window.waiting.push([this, text]);
  else send.call(this, text);
};
window.release = (next) => {
  window.held = next;
  for (const [socket, text] of window.waiting.splice(0)) send.call(socket, text);
};
"""


def test_another_program_never_shows_steps_of_the_one_before(reader: Reader) -> None:
    reader.open("program=firewall")
    reader.chromium.execute_script(HOLD)
    keys = ActionChains(reader.chromium)
    keys.key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    reader.wait(lambda: reader.chromium.execute_script("return waiting.length"))
    Select(reader.one("select")).select_by_value("balancer")
    reader.wait(lambda: not reader.texts(".step"))
    reader.chromium.execute_script("release((request) => request.do === 'check')")
    reader.wait(lambda: reader.chromium.execute_script("return waiting.length"))  # the new program's
    assert reader.texts(".step") == []
    assert reader.texts(".view .empty") == ["Please wait: compiling the program."]
    reader.chromium.execute_script("release(() => false)")
    reader.wait(lambda: reader.texts(".step"))


def test_the_tab_of_the_file_of_a_step_is_in_sight(reader: Reader) -> None:
    reader.open("program=fanin")
    for name in ("fanin.p4", "values.p4"):
        script = """const tabs = document.querySelector("[aria-label=Files]");
            const tab = [...tabs.children].find((each) => each.innerText === arguments[0]);
            tabs.scrollLeft = 0;
            tab.click();
            requestAnimationFrame(() => setTimeout(() => {
                const [box, row] = [tab.getBoundingClientRect(), tabs.getBoundingClientRect()];
                arguments[1](tab.ariaSelected === "true" && box.right <= row.right + 1 && box.left >= row.left - 1);
            }, 200))"""
        assert reader.chromium.execute_async_script(script, name)


def test_the_line_that_is_typed_stays_above_the_list_of_errors(reader: Reader) -> None:
    reader.open("program=firewall")
    reader.one(".cm-content").click()
    ActionChains(reader.chromium).key_down(Keys.CONTROL).send_keys(Keys.END).key_up(Keys.CONTROL).perform()
    reader.press("oops")
    reader.wait(lambda: reader.texts(".problems .error"))
    script = """const line = document.querySelector(".cm-activeLine")?.getBoundingClientRect();
        return line && line.bottom <= document.querySelector(".problems").getBoundingClientRect().top + 1"""
    reader.wait(lambda: reader.chromium.execute_script(script))
