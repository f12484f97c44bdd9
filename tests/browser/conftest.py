"""A browser for tests of pages, and what it shows as pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
# Without these it looks for updates, and for hosts on the internet.
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    """Chromium, without a window. Tests that use it have the marker `browser`."""
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for each in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def picture(chromium: Chrome) -> Callable[..., None]:
    """`picture(name, width, height)` keeps what a page looks like in build/screenshots, for people to look at."""

    def take(name: str, width: int, height: int) -> None:
        chromium.set_window_size(width, height)
        frames = "const done = arguments[0]; const next = requestAnimationFrame; "
        chromium.execute_async_script(f"{frames}next(() => next(() => next(() => setTimeout(done, 100))))")
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        assert chromium.save_screenshot(str(SCREENSHOTS / f"{name}.png"))

    return take
