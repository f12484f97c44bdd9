"""The modules that a process for a virtual point has imported when it starts, and our program, already compiled."""

from contextlib import suppress

from fanin.native.collector import collect_seldom

collect_seldom()  # the imports below already make many objects

import fanin.experiments.virtual.point  # noqa: E402, F401
from fanin.native.toolchain import ToolchainError  # noqa: E402
from fanin.p4compiler import CompileError  # noqa: E402
from fanin.simulator.fabric import load_switch  # noqa: E402

with suppress(CompileError, ToolchainError):  # the run itself will report the error
    load_switch()
