"""Commands `p4c` and `p4c-bm2-ss`: our compiler with p4c's command line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn

if TYPE_CHECKING:
    from fanin.p4compiler import Compiled

Command = Literal["p4c", "p4c-bm2-ss"]

_EXIT_FAILURE = 1
_ARCHITECTURES = ("v1model", "ss", "psa")
_INCLUDE_PATH = "P4C_16_INCLUDE_PATH"
_BMV2 = ("bmv2", "bmv2-ss-p4org", "bmv2-v1model-p4org", "bmv2-*-p4org")
_P4_16 = ("p4-16", "p4_16", "16", "1.2")
# Options of p4c that change neither the JSON nor the P4Info.
_UNUSED_FLAGS = (
    "--emit-externs",
    "--ndebug",
    "-g",
    "--preprocessor-only-comments",
    "--nocpp",
    "--parser-inline-opt",
    "--loopsUnroll",
    "--doNotEmitIncludes",
    "--testJson",
    "--debug",
    "-v",
    "-c",
    "-S",
    "-O",
    "-O0",
    "-O1",
)
_UNUSED_VALUES = (
    *(
        "--Winfo",
        "--maxErrorCount",
        "--excludeFrontendPasses",
        "--excludeMidendPasses",
        "-T",
        "--top4",
    ),
    *("--dump", "--pp", "--toJSON", "--excludeBackendPasses", "--disable-annotations", "--metrics", "-W"),
)


_WARNING_OPTIONS = ("--Wdisable", "--Werror", "--Wwarn")


class _Parser(argparse.ArgumentParser):
    """Parser whose errors do not print the whole usage: a Makefile's output should end with the error."""

    def error(self, message: str) -> NoReturn:
        self.exit(_EXIT_FAILURE, f"{self.prog}: {message}; {self.prog} --help lists the options\n")


def main(command: Command, argv: Sequence[str] | None = None) -> int:
    """Compile a program as the command would.

    Args:
        command: The command. `p4c` writes into a folder, `p4c-bm2-ss` writes a file.
        argv: The arguments; None uses the process's own.

    Returns:
        The exit status: 0, or 1 if nothing was compiled.
    """
    words = sys.argv[1:] if argv is None else argv
    # These options need no name, and a program that follows is none.
    words = [
        f"{word}=" if word in _WARNING_OPTIONS and after.endswith(".p4") else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]
    arguments = _parser(command).parse_args(words)
    try:
        _check(arguments)
        compiled = _compile(arguments)
        for path, text in _files(command, arguments, compiled).items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text)
    except _RefusedError as error:
        print(error, file=sys.stderr)
        return _EXIT_FAILURE
    except OSError as error:
        print(f"{command}: {error.filename}: {error.strerror}", file=sys.stderr)
        return _EXIT_FAILURE
    return 0


class _RefusedError(Exception):
    """Command line or program that cannot be compiled. The message explains why."""


def _parser(command: Command) -> _Parser:
    parser = _Parser(
        prog=command,
        description="Compile a P4_16 program for v1model or PSA to BMv2 JSON and P4Info. This is fanin's compiler"
        " with p4c's command line.",
        epilog=f"The folders in {_INCLUDE_PATH} are searched for #include after those of -I, and before fanin's own"
        " v1model.p4.",
        allow_abbrev=False,
    )
    parser.add_argument("program", type=Path, metavar="PROGRAM.p4", help="P4_16 source")
    parser.add_argument("-V", "--version", action="version", version=f"{command} (fanin {version('fanin')})")
    parser.add_argument("-b", "--target", default="bmv2", help="bmv2")
    parser.add_argument("-a", "--arch", default="v1model", help="v1model or psa")
    parser.add_argument(
        "-x", "--std", "--p4v", default="p4-16", help="the version of the language: p4-16, or 16"
    )
    parser.add_argument(
        *("-o", "--output"),
        type=Path,
        dest="output",
        metavar="FILE.json|FOLDER",
        help="the JSON, or the folder for PROGRAM.json; by default this folder",
    )
    parser.add_argument(
        *("--p4runtime-files", "--p4runtime-file"),
        metavar="FILES",
        help="write the P4Info to these files, separated by commas; .json and .bin are those formats, all else is text",
    )
    parser.add_argument(
        "--p4runtime-format", choices=("text", "json", "binary"), help="the format of all of them"
    )
    parser.add_argument(
        "-I", action="append", default=[], dest="include", metavar="FOLDER", help="search for #include"
    )
    parser.add_argument(
        "-D", action="append", default=[], dest="define", metavar="NAME[=VALUE]", help="define a macro"
    )
    parser.add_argument(
        "-U", action="append", default=[], dest="undefine", metavar="NAME", help="undefine a macro"
    )
    parser.add_argument(
        "--Wdisable", nargs="?", action="append", const="", default=[], metavar="NAME", help="omit warnings"
    )
    parser.add_argument(
        "--Werror",
        nargs="?",
        action="append",
        const="",
        default=[],
        metavar="NAME",
        help="turn warnings into errors",
    )
    parser.add_argument(
        "--Wwarn",
        nargs="?",
        action="append",
        const="",
        default=[],
        metavar="NAME",
        help="keep warnings that --Werror would turn into errors",
    )
    for name in _UNUSED_FLAGS:
        parser.add_argument(name, action="store_true", help="accepted, without effect")
    for name in _UNUSED_VALUES:
        parser.add_argument(name, metavar="X", help="accepted, without effect")
    return parser


def _check(arguments: argparse.Namespace) -> None:
    """Refuse what our compiler cannot produce."""
    if arguments.target not in _BMV2:
        raise _RefusedError(f"--target {arguments.target}: fanin compiles for bmv2 only")
    if arguments.arch not in _ARCHITECTURES:
        raise _RefusedError(f"--arch {arguments.arch}: fanin compiles programs for v1model and psa only")
    if arguments.std not in _P4_16:
        raise _RefusedError(f"--std {arguments.std}: fanin compiles P4_16 only (--std p4-16)")


def _compile(arguments: argparse.Namespace) -> Compiled:
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.p4compiler import CompileError, compile_once, graded

    defines = dict(_definition(text) for text in arguments.define)
    for name in arguments.undefine:
        defines.pop(name, None)
    try:
        compiled = compile_once(arguments.program, include_dirs=_folders(arguments), defines=defines)
    except CompileError as error:
        raise _RefusedError(str(error)) from None
    warnings, errors = graded(compiled.warnings, arguments.Wdisable, arguments.Werror, arguments.Wwarn)
    for warning in warnings:
        print(warning, file=sys.stderr)
    if errors:
        raise _RefusedError("\n".join(map(str, errors)))
    return compiled


def _definition(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name, value or "1"


def _folders(arguments: argparse.Namespace) -> list[Path]:
    further = filter(None, os.environ.get(_INCLUDE_PATH, "").split(os.pathsep))
    return [Path(folder) for folder in (*arguments.include, *further)]


def _files(command: Command, arguments: argparse.Namespace, compiled: Compiled) -> Mapping[Path, bytes]:
    """Return the content of each file to write."""
    program = Path(arguments.program.name).with_suffix(".json")
    output = arguments.output or Path()
    if (command == "p4c" and output.suffix != ".json") or output.is_dir():
        output /= program
    files = {output: compiled.json_text().encode()}
    for name in filter(None, (arguments.p4runtime_files or "").split(",")):
        form = arguments.p4runtime_format or _FORMATS.get(Path(name).suffix, "text")
        files[Path(name)] = _P4INFO[form](compiled)
    return files


def _p4info_json(compiled: Compiled) -> bytes:
    from google.protobuf import json_format  # not above: few ask for it

    return (
        str(json_format.MessageToJson(compiled.p4info, preserving_proto_field_name=False)) + "\n"
    ).encode()


_FORMATS = {".json": "json", ".bin": "binary"}
_P4INFO: Mapping[str, Callable[[Compiled], bytes]] = {
    "text": lambda compiled: compiled.p4info_text().encode(),
    "json": _p4info_json,
    "binary": lambda compiled: compiled.p4info.SerializeToString(),
}
