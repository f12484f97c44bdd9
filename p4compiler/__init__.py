"""A compiler from P4_16 (v1model) to BMv2's JSON and P4Info."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fanin.p4compiler.compile_cache import compile_once
from fanin.p4compiler.compiled import Compiled
from fanin.p4compiler.source import WARNINGS, CompileError, Diagnostic, Span, graded, page_of

if TYPE_CHECKING:
    from fanin.p4compiler.compile import compile_file, dump_after, lint_file
    from fanin.p4compiler.phases import PHASE_NAMES

__all__ = [
    "PHASE_NAMES",
    "WARNINGS",
    "CompileError",
    "Compiled",
    "Diagnostic",
    "Span",
    "compile_file",
    "compile_once",
    "dump_after",
    "graded",
    "lint_file",
    "page_of",
]

# Load the compiler itself only when a part of it is used: most programs come from the cache.
_LOADED_LATER = {
    "compile_file": "compile",
    "dump_after": "compile",
    "lint_file": "compile",
    "PHASE_NAMES": "phases",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LOADED_LATER[name]}"), name)
