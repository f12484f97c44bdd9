"""Debian's Chromium, driven by Selenium; tests that need it are skipped where it is not installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"  # to be looked at
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"),
    # It would look for servers of its maker, which tests must not depend on.
    *("--disable-background-networking", "--disable-component-update", "--disable-quic"),
)


@contextmanager
def chromium(
    width: int = 1280, height: int = 720, *, dark: bool = False, calm: bool = False
) -> Iterator[Any]:
    """Run a browser with a window of this size; `calm` is a reader who wants less motion."""
    webdriver = pytest.importorskip("selenium.webdriver")
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if None in found:
        pytest.skip("chromium and chromedriver are not installed: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = found[0]
    for option in _OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(found[1]))
    try:
        wanted = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"},
        ]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wanted})
        yield browser
    finally:
        browser.quit()


def keep_screenshot(browser: Any, name: str) -> None:
    """Keep what the browser shows as build/screenshots/NAME.png."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
