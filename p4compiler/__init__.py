"""A compiler from P4_16 (v1model) to BMv2's JSON and P4Info."""

from p4compiler.compile import Compiled, compile_file, dump_after
from p4compiler.kept import compile_once
from p4compiler.phases import PHASE_NAMES
from p4compiler.source import CompileError, Diagnostic, Span

__all__ = [
    "PHASE_NAMES",
    "CompileError",
    "Compiled",
    "Diagnostic",
    "Span",
    "compile_file",
    "compile_once",
    "dump_after",
]
