"""What a process for a point in virtual time has when it begins: the code, and our program, read and compiled."""

from contextlib import suppress

import fanin.experiments.virtual.point  # noqa: F401
from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import CompileError
from fanin.simulator.fabric import load_switch

with suppress(CompileError, ToolchainError):  # what is wrong is said where it is run
    load_switch()
