"""A compiler from P4_16 (v1model) to BMv2's JSON and P4Info."""

from p4compiler.compile import Compiled, compile_file
from p4compiler.source import CompileError, Diagnostic, Span

__all__ = ["CompileError", "Compiled", "Diagnostic", "Span", "compile_file"]
