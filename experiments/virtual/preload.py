"""The modules that a process for a virtual point has imported when it starts, and our program, already compiled."""

from contextlib import suppress
from importlib import import_module

from fanin.native.collector import collect_seldom


def _preload() -> None:
    collect_seldom()  # the imports already make many objects
    import_module("fanin.experiments.virtual.point")
    from fanin.native.toolchain import ToolchainError
    from fanin.p4compiler import CompileError
    from fanin.simulator.fabric import load_switch

    with suppress(CompileError, ToolchainError):  # the run itself will report the error
        load_switch()


_preload()
