"""The P4 compilers with which an experiment can run."""

from __future__ import annotations

import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from finsy.proto import p4i
from google.protobuf import text_format

from fanin.experiments.scenario.tools import P4C, Compiler, ToolError
from fanin.p4compiler import Diagnostic, compile_once
from fanin.testbed.runs import scratch


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A program as a switch takes it: P4Info and BMv2 JSON, and the warnings of our compiler."""

    p4info: p4i.P4Info
    device_config: bytes
    warnings: tuple[Diagnostic, ...] = ()


def compile_program(program: Path, compiler: Compiler) -> CompiledProgram:
    """Compile a v1model program.

    Raises:
        CompileError: If our compiler rejects it.
        ToolError: If it cannot be read, or p4c is not installed or rejects it.
    """
    match compiler:
        case "embedded":
            try:
                compiled = compile_once(program)
            except OSError as error:
                raise ToolError(f"{program}: cannot be read: {error.strerror}") from None
            return CompiledProgram(compiled.p4info, compiled.device_config(), compiled.warnings)
        case "p4c":
            return _run_p4c(program)
    assert_never(compiler)


def _run_p4c(program: Path) -> CompiledProgram:
    with tempfile.TemporaryDirectory(prefix="fanin-", dir=scratch()) as name:
        config, p4info = Path(name, "program.json"), Path(name, "program.p4info.txtpb")
        command = [*P4C.find(), "--p4runtime-files", str(p4info), "-o", str(config), str(program)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise ToolError(f"p4c does not compile {program}:\n{done.stderr.strip()}")
        compact = json.dumps(json.loads(config.read_text()), separators=(",", ":"))
        return CompiledProgram(text_format.Parse(p4info.read_text(), p4i.P4Info()), compact.encode())
