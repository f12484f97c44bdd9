"""Tests that need a program of others run where it is installed and are skipped, with the reason, elsewhere."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from fanin.controller.requirements import PROGRAM
from fanin.experiments.scenario.tools import BMV2, P4C, ToolError
from fanin.native import libc
from fanin.native.collector import collect_seldom
from fanin.p4compiler import Compiled, compile_once
from fanin.p4switch.engine.engine import Engine
from tests.sizes import few, sized

# How long an example takes says nothing about the code on a busy machine. `make test` draws the same examples each
# time, so that a tree passes always or never; `make test-long` draws others each time, and more.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=sized(True, False),
    max_examples=sized(20, 100),
)
settings.load_profile("any machine")
# Otherwise it takes constants from all modules that are loaded, which depends on the tests that have run before. And
# each process reads all of fanin and of its tests for them.
providers._get_local_constants = Constants

JOBS = Path(__file__).parent / "workers" / "job"
COMMANDS = (Path(__file__).parent / "fanin", Path(__file__).parent / "docs")


@pytest.hookimpl(optionalhook=True)  # without pytest-xdist, there is no such hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, unless its tests have a group.

    Otherwise each process sets up the fixtures of all modules, and the time to choose a test grows with their number.
    """
    from xdist.scheduler import LoadGroupScheduling

    class FileScheduling(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return super()._split_scope(nodeid).partition("::")[0]

    return FileScheduling(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_configure() -> None:
    # In the background of a shell, or under nohup, they are ignored, and would be by all that tests start and then end.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if "PYTEST_XDIST_WORKER" in os.environ:  # or it would run on for seconds after pytest has been killed
        libc.call("prctl", libc.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    gc.disable()  # until all is collected, none of which goes


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    # An id goes from process to process with every report, and into the environment: one of 64 MB takes seconds.
    return argname if isinstance(val, (str, bytes)) and len(val) > 1000 else None


def _leave_for_make_test_long(config: pytest.Config, items: list[pytest.Item]) -> None:
    cases: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("few"):
            cases.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    left = set()
    for of_one_test in cases.values():
        marker = of_one_test[0].get_closest_marker("few")
        assert marker is not None
        left.update(set(of_one_test).difference(few(of_one_test, *marker.args)))
    config.hook.pytest_deselected(items=list(left))
    items[:] = [item for item in items if item not in left]


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist's own, which reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if sized(True, False):
        _leave_for_make_test_long(config, items)
    # Live networks in two processes of pytest-xdist, those of commands and all others, so that at most two share the
    # machine's time. Beside them, in another, tests in which workers mostly wait for one another. All three begin at
    # once. Of the others, those that take longer come first, so that no process works on one at the end while others
    # have nothing to do.
    groups: dict[str, list[pytest.Item]] = {"commands": [], "live": [], "jobs": [], "slow": [], "": []}
    for item in items:
        parents = item.path.parents
        if item.get_closest_marker("live") is not None:
            group = "commands" if any(folder in parents for folder in COMMANDS) else "live"
        else:
            group = "jobs" if JOBS in parents else ""
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
        if group == "jobs":
            item.add_marker(pytest.mark.slow)
        groups[group or ("slow" if item.get_closest_marker("slow") else "")].append(item)
    items[:] = chain(*groups.values())


def pytest_collection_finish() -> None:
    # What is there now stays: to go through it again and again took an eighth of the time.
    gc.freeze()
    collect_seldom()
    gc.enable()


@functools.cache
def _give_way() -> None:
    """To live networks, which take longest, and whose processes wait for one another."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.nice(10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("live") is None:
        _give_way()
    for marker, tool in (("bmv2", BMV2), ("p4c", P4C)):
        if item.get_closest_marker(marker):
            try:
                tool.find()
            except ToolError as error:
                pytest.skip(str(error))
    if item.get_closest_marker("tshark") and shutil.which("tshark") is None:
        pytest.skip("tshark is not installed: apt-get install tshark")


@pytest.fixture(scope="session")
def fanin_p4() -> Compiled:
    """The program of p4src/, compiled once for all tests of a process."""
    return compile_once(PROGRAM)


@pytest.fixture(scope="session")
def switch(fanin_p4: Compiled) -> Engine:
    """A switch of virtual time that runs the program of p4src/; tests make others of it (`new_instance()`)."""
    return Engine.load(fanin_p4.device_config())


@pytest.fixture(scope="session")
def old_kernel() -> Iterator[dict[str, str]]:
    """An environment in which packet sockets behave as on kernels before 6.2 (old_kernel.c)."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # an ordinary user loads it, too
        library = Path(folder, "old_kernel.so")
        source = Path(__file__).with_name("old_kernel.c")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        yield {"LD_PRELOAD": str(library)}
