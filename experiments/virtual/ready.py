"""What a process for a point in virtual time has when it begins: the code, and our program, read and compiled."""

from contextlib import suppress

import experiments.virtual.point  # noqa: F401
from experiments.virtual.fabric import load_switch
from native.toolchain import ToolchainError
from p4compiler import CompileError

with suppress(CompileError, ToolchainError):  # what is wrong is said where it is run
    load_switch()
