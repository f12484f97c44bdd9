"""A compiler from P4_16 (v1model) to BMv2's JSON and P4Info."""

from .compile import Compiled, compile_file
from .source import CompileError, Diagnostic, Span

__all__ = ["CompileError", "Compiled", "Diagnostic", "Span", "compile_file"]
