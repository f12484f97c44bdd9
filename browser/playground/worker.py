"""The process that compiles and runs what a page asks for. It reads and writes lines of JSON.

The session (session.py) starts it in a sandbox: nothing in here has to be trusted.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from fanin.browser.playground.description import describe
from fanin.browser.playground.scenario import ScenarioError, as_document, from_stf, read_scenario, stf_text
from fanin.browser.playground.session import LONGEST_ANSWER
from fanin.browser.playground.steps import StepMaker, outputs_of
from fanin.classroom.check import FAST_COMPILE
from fanin.native.cache import cache_directory
from fanin.native.toolchain import ToolchainError
from fanin.p4compiler import CompileError, Diagnostic, compile_file
from fanin.p4compiler.compiled import Compiled
from fanin.p4switch.bmv2json.program import ProgramError
from fanin.p4switch.engine.engine import Engine
from fanin.p4switch.reader import read_program
from fanin.p4switch.stf.run import StfRunner
from fanin.p4switch.stf.syntax import StfError
from fanin.p4switch.trace.tracer import traced

MOST_FILES = 40
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,80}\.(?:p4|h)")

Json = dict[str, Any]


class RequestError(ValueError):
    """A request that is not one of those that pages make."""


def _files(request: Mapping[str, Any]) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the program's files and the name of the one to compile."""
    match request:
        case {"files": dict(files), "main": str(main)} if main in files and len(files) <= MOST_FILES:
            pass
        case _:
            raise RequestError("a program has files, and the name of the one to compile")
    for name, text in files.items():
        if not _NAME.fullmatch(name) or not isinstance(text, str):
            raise RequestError(
                f"{name!r} is no name of a file: use letters and digits, and .p4 or .h at the end"
            )
    return tuple(sorted(files.items())), main


@lru_cache(2)
def _compiled(files: tuple[tuple[str, str], ...], main: str) -> Compiled | CompileError:
    """Compile a program in the working folder, which has no other files."""
    for each in Path().iterdir():
        each.unlink()
    for name, text in files:
        Path(name).write_text(text)
    try:
        return compile_file(main, confined=True)
    except CompileError as error:
        return error


def check(request: Mapping[str, Any]) -> Json:
    """Compile a program: its diagnostics, and if it has no errors what the page shows of it."""
    found = _compiled(*_files(request))
    if isinstance(found, CompileError):
        return {"diagnostics": [_diagnostic(each) for each in found.diagnostics]}
    try:
        described = describe(read_program(found.device_config()), found.states)
    except ProgramError as error:
        return {"diagnostics": [_whole(str(error))]}
    return {"diagnostics": [_diagnostic(each) for each in found.warnings], "program": described}


def run(request: Mapping[str, Any]) -> Json:
    """Run a scenario on a new switch: the way of each packet, and the cells of registers in the end."""
    engine, maker = _engine(request)
    scenario = read_scenario(request.get("scenario"))
    runner = StfRunner(engine)
    with traced(engine) as tracer:
        runner.run(stf_text(scenario, engine.program))
        packets = [maker.document(each) for each in tracer.packets()]
    if tracer.lost:
        raise ScenarioError("these packets take too many steps: send fewer at once")
    registers = {name: engine.register(name).read() for name in engine.program.registers}
    return {
        "packets": packets,
        "registers": {
            name: {str(index): str(value) for index, value in enumerate(values) if value}
            for name, values in registers.items()
        },
    }


def export(request: Mapping[str, Any]) -> Json:
    """Return a scenario as an STF test that expects what leaves now, and what keeps it from passing again."""
    engine, _ = _engine(request)
    scenario = read_scenario(request.get("scenario"))
    with traced(engine) as tracer:
        StfRunner(engine).run(stf_text(scenario, engine.program))
        outputs = [outputs_of(each) for each in tracer.packets()]
    text = stf_text(scenario, engine.program, outputs)
    differences = StfRunner(engine.new_instance()).run(text)
    return {"stf": text, "differences": differences}


def load(request: Mapping[str, Any]) -> Json:
    """Return the scenario of an STF test."""
    program = read_program(_correct(request).device_config())
    return {"scenario": as_document(from_stf(str(request.get("stf", "")), program))}


def packet(request: Mapping[str, Any]) -> Json:
    """Return the bytes of a packet in scapy's notation."""
    from fanin.packets import packet_from_layers  # scapy takes a second to import

    return {"hex": packet_from_layers(str(request.get("layers", "")), {}).hex()}


def _engine(request: Mapping[str, Any]) -> tuple[Engine, StepMaker]:
    """Return a new switch with the program."""
    found = _correct(request)
    engine = Engine.load(found.device_config())
    return engine, StepMaker(engine.program, found.states)


def _correct(request: Mapping[str, Any]) -> Compiled:
    found = _compiled(*_files(request))
    if isinstance(found, CompileError):
        raise RequestError("the program has errors")
    return found


def _diagnostic(found: Diagnostic) -> Json:
    span = found.span
    return {
        "file": span.file.path,
        "line": span.line,
        "column": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
        "severity": found.severity,
        "message": found.message + (f"\nhint: {found.hint}" if found.hint else ""),
        "text": str(found),
    }


def _whole(message: str) -> Json:
    place = {"file": "", "line": 1, "column": 0, "endLine": 1, "endColumn": 0}
    return {**place, "severity": "error", "message": message, "text": message}


_ANSWERS: dict[str, Callable[[Mapping[str, Any]], Json]] = {
    each.__name__: each for each in (check, run, export, load, packet)
}


def answer(line: str | bytes) -> str:
    """Answer one request."""
    try:
        request = json.loads(line)
        if not isinstance(request, dict) or str(request.get("do")) not in _ANSWERS:
            raise RequestError(f"a request names what to do: {', '.join(_ANSWERS)}")
        text = json.dumps(_ANSWERS[request["do"]](request), separators=(",", ":"))
    except (ScenarioError, StfError, ProgramError, ToolchainError, RequestError, ValueError) as error:
        text = json.dumps({"error": str(error)})
    except (MemoryError, RecursionError, OSError) as error:
        text = json.dumps({"error": f"the limits of a session are reached: {error or type(error).__name__}"})
    return text


def main() -> None:
    """Serve requests in the folder of the first argument; the second has libraries that the cache begins with."""
    os.environ.update(FAST_COMPILE)
    cache = cache_directory()
    if len(sys.argv) > 2 and not cache.exists():
        shutil.copytree(sys.argv[2], cache)
        cache.chmod(0o700)
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin.buffer:
        text = answer(line)
        if len(text) >= LONGEST_ANSWER:
            text = json.dumps({"error": "the answer is too long: send fewer or shorter packets"})
        output.write(text + "\n")
        output.flush()


if __name__ == "__main__":
    main()
