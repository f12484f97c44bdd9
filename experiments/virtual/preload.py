"""The modules that a process for a virtual point has imported when it starts, and our program, already compiled."""

from contextlib import suppress

import fanin.experiments.virtual.point  # noqa: F401
from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import CompileError
from fanin.simulator.fabric import load_switch

with suppress(CompileError, ToolchainError):  # the run itself will report the error
    load_switch()
