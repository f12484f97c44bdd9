"""Commands `p4c` and `p4c-bm2-ss`: our compiler with p4c's command line."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
# Options that change neither the JSON nor the P4Info in p4c either.
_SAME = (
    "-g",
    "-c",
    "--compile",
    "-S",
    "-e",
    "--nocpp",
    "--parser-inline-opt",
    "-O",
    "-O0",
    "-O1",
    "-O2",
    "-O3",
)
_SAME_VALUES = ("-Xassembler", "-Xlinker")
# Options that p4c obeys and this compiler does not, with the reason. A warning names it.
_WITHOUT_EFFECT = {
    **dict.fromkeys(("--debug", "-v"), "it prints nothing about itself"),
    **dict.fromkeys(("--gdb", "--cgdb", "--lldb"), "it is not debugged with it"),
    "--ndebug": "it has no such mode",
    "--testJson": "it has no IR in p4c's format",
    "--doNotEmitIncludes": "it writes no P4",
    "--emit-externs": "it writes the externs that fanin's switch has, and no others",
    "--loopsUnroll": "parsers loop as they are written",
}
_VALUES_WITHOUT_EFFECT = {
    **dict.fromkeys(("--toJSON", "--toJson", "--dump", "--pp", "--top4"), "it has no IR in p4c's format"),
    "-T": "it prints nothing about itself",
    "--metrics": "it writes no metrics",
    "--maxErrorCount": "it prints all errors",
    **dict.fromkeys(
        ("--excludeFrontendPasses", "--excludeMidendPasses", "--excludeBackendPasses"),
        "it has passes of its own",
    ),
}
_REFUSED = {
    **dict.fromkeys(("-###", "--test-only"), "this compiler runs no commands that could be printed"),
    **dict.fromkeys(("--listFrontendPasses", "--listMidendPasses"), "this compiler has passes of its own"),
}
_REFUSED_VALUES = {
    # p4c-bm2-ss has it, for the preprocessor.
    "-W": "p4c has no such option; write --Werror, --Wdisable or --Wwarn",
    **dict.fromkeys(("--fromJSON", "--fromJson"), "this compiler reads P4 only"),
    **dict.fromkeys(
        ("--disable-annotations", "--disable-annotation", "--disable-pragmas", "--disable-pragma"),
        "remove the annotations from the program, or put them between #ifdef and #endif",
    ),
    **dict.fromkeys(
        ("--p4runtime-entries-file", "--p4runtime-entries-files"),
        "the switch takes the program's entries from the JSON",
    ),
}
# Options for the preprocessor, which p4c passes to the system's C compiler.
_PREPROCESSOR = ("-M", "-MD", "-MG", "-MP")
_PREPROCESSOR_VALUES = ("-MF", "-MT", "-MQ")
_PREPROCESS = ("-E", "-C", "-undef", "-nostdinc", "-x", "assembler-with-cpp")

# What follows is an option of the preprocessor or of p4c-bm2-ss; here all options are the command's own.
_PASS_ON = ("-Xpreprocessor", "-Xp4c")
_PASSED_ON = re.compile(f"^({'|'.join(_PASS_ON)})=")

_WARNING_OPTIONS = ("--Wdisable", "--Werror", "--Wwarn", "--Winfo")


class _Parser(argparse.ArgumentParser):
    """Parser whose errors do not print the whole usage: a Makefile's output should end with the error."""

    def error(self, message: str) -> NoReturn:
        self.exit(_EXIT_FAILURE, f"{self.prog}: {message}; {self.prog} --help lists the options\n")


class _WithoutEffect(argparse.Action):
    """Keep the option's name, for a warning."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, _values: object, option: str | None = None
    ) -> None:
        namespace.without_effect.append(option)


class _Refused(argparse.Action):
    """Refuse the option, with the reason in `const`."""

    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: object, _values: object, option: str | None = None
    ) -> None:
        parser.exit(_EXIT_FAILURE, f"{parser.prog}: {option} is not supported: {self.const}\n")


class _Preprocessor(argparse.Action):
    """Keep an option for the preprocessor, in the order in which they are given."""

    def __call__(
        self, _parser: object, namespace: argparse.Namespace, values: object, option: str | None = None
    ) -> None:
        if option == "-W":
            namespace.preprocessor.append(f"-W{values}")
        else:
            namespace.preprocessor += [option, values] if isinstance(values, str) else [option]


def main(command: Command, argv: Sequence[str] | None = None) -> int:
    """Compile a program as the command would.

    Args:
        command: The command. `p4c` writes into a folder, `p4c-bm2-ss` writes a file.
        argv: The arguments; None uses the process's own.

    Returns:
        The exit status: 0, or 1 if nothing was compiled.
    """
    given = sys.argv[1:] if argv is None else argv
    words = [_PASSED_ON.sub("", word) for word in given if word not in _PASS_ON]
    # These options need no name, and a program that follows is none.
    words = [
        f"{word}=" if word in _WARNING_OPTIONS and after.endswith(".p4") else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]
    arguments = _parser(command).parse_args(words)
    if command == "p4c-bm2-ss":
        arguments.define.insert(0, "__TARGET_BMV2__")
    for option in dict.fromkeys(arguments.without_effect):
        why = (_WITHOUT_EFFECT | _VALUES_WITHOUT_EFFECT)[option]
        print(f"{command}: warning: {option} has no effect on fanin's compiler: {why}", file=sys.stderr)
    try:
        _check(command, arguments)
        if arguments.preprocess_only or arguments.preprocessor:
            _preprocess(command, arguments)
        if arguments.preprocess_only or "-M" in arguments.preprocessor:
            return 0
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
    by_default = os.environ if command == "p4c" else {}
    parser.add_argument("-b", "--target", default=by_default.get("P4C_DEFAULT_TARGET", "bmv2"), help="bmv2")
    parser.add_argument(
        "-a", "--arch", default=by_default.get("P4C_DEFAULT_ARCH", "v1model"), help="v1model or psa"
    )
    parser.add_argument(
        *("-x", "--std", "--p4v"),
        default=by_default.get("P4C_DEFAULT_LANGUAGE", "p4-16"),
        help="the version of the language: p4-16, or 16",
    )
    parser.add_argument(
        *("-o", "--output"),
        type=Path,
        dest="output",
        metavar="FILE.json|FOLDER",
        help="the JSON, or the folder for PROGRAM.json; by default this folder",
    )
    parser.add_argument(
        "--p4runtime-files",
        metavar="FILES",
        help="write the P4Info to these files, separated by commas; .json and .bin are those formats, all else is text",
    )
    parser.add_argument("--p4runtime-file", type=Path, metavar="FILE", help="write the P4Info to this file")
    parser.add_argument(
        "--p4runtime-format",
        choices=("text", "json", "binary"),
        default="binary",
        help="the format of --p4runtime-file; default binary",
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
    for name, what in (
        ("--Wdisable", "omit warnings"),
        ("--Winfo", "print warnings as notes"),
        ("--Wwarn", "keep warnings that --Werror would turn into errors"),
        ("--Werror", "turn warnings into errors"),
    ):
        parser.add_argument(
            name, type=_names, nargs="?", action="extend", const=[""], default=[], metavar="NAME", help=what
        )
    _add_preprocessor(command, parser)
    if command == "p4c":
        for name in ("--help-targets", "--target-help", "--targets-help"):
            parser.add_argument(
                name, action="version", version="bmv2-v1model\nbmv2-psa", help="list the targets"
            )
        none = "there is no documentation of annotations; p4c has none for bmv2 either"
        for kind in ("pragma", "pragmas", "annotation", "annotations"):
            for name in (f"--help-{kind}", f"--{kind}-help"):
                parser.add_argument(name, action="version", version=none, help=argparse.SUPPRESS)
    parser.set_defaults(without_effect=[], preprocessor=[])
    for name in _SAME:
        parser.add_argument(name, action="store_true", help="as if it were left out")
    for name in _SAME_VALUES:
        parser.add_argument(name, metavar="X", help="as if it were left out")
    for names, count in ((_WITHOUT_EFFECT, 0), (_VALUES_WITHOUT_EFFECT, 1)):
        for name in names:
            parser.add_argument(name, action=_WithoutEffect, nargs=count, metavar="X", help="without effect")
    for reasons, count in ((_REFUSED, 0), (_REFUSED_VALUES, 1)):
        for name, why in reasons.items():
            if name == "-W" and command != "p4c":
                continue
            parser.add_argument(name, action=_Refused, nargs=count, const=why, metavar="X", help="refused")
    return parser


def _names(text: str) -> list[str]:
    return text.split(",")


def _add_preprocessor(command: Command, parser: argparse.ArgumentParser) -> None:
    """Add the options that p4c hands to the system's C compiler."""
    only = "write the preprocessed program to " + (
        "PROGRAM.p4i" if command == "p4c" else "the standard output"
    )
    parser.add_argument("-E", action="store_true", dest="preprocess_only", help=only)
    for name in _PREPROCESSOR:
        parser.add_argument(name, action=_Preprocessor, nargs=0, help="passed to the C preprocessor")
    for name in (*_PREPROCESSOR_VALUES, *(() if command == "p4c" else ("-W",))):
        parser.add_argument(name, action=_Preprocessor, metavar="X", help="passed to the C preprocessor")


def _check(command: Command, arguments: argparse.Namespace) -> None:
    """Refuse what our compiler cannot produce."""
    if arguments.target not in _BMV2:
        raise _RefusedError(f"{command}: --target {arguments.target}: fanin compiles for bmv2 only")
    if arguments.arch not in _ARCHITECTURES:
        raise _RefusedError(
            f"{command}: --arch {arguments.arch}: fanin compiles programs for v1model and psa only"
        )
    if arguments.std not in _P4_16:
        raise _RefusedError(f"{command}: --std {arguments.std}: fanin compiles P4_16 only (--std p4-16)")


def _preprocess(command: Command, arguments: argparse.Namespace) -> None:
    """Run the C preprocessor as p4c does: into PROGRAM.p4i, or to the standard output with p4c-bm2-ss -E."""
    from fanin.p4compiler.compile import INCLUDE

    macros = [f"-D{text}" for text in arguments.define] + [f"-U{name}" for name in arguments.undefine]
    folders = [word for folder in (*_folders(arguments), INCLUDE) for word in ("-I", str(folder))]
    line = [os.environ.get("CC", "cc"), *_PREPROCESS, *macros, *folders, *arguments.preprocessor]
    output: int | None = None
    if command == "p4c":
        folder = arguments.output or Path()
        folder.mkdir(parents=True, exist_ok=True)
        line += ["-o", str(folder / Path(arguments.program.name).with_suffix(".p4i"))]
    elif not (arguments.preprocess_only or "-M" in arguments.preprocessor):
        output = subprocess.DEVNULL
    try:
        status = subprocess.run([*line, str(arguments.program)], stdout=output, check=False).returncode
    except FileNotFoundError:
        raise _RefusedError(
            f"{command}: the preprocessor needs a C compiler: {line[0]} is not installed"
        ) from None
    if status:
        raise _RefusedError(f"{command}: the C preprocessor ended with status {status}")


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
        noted = {"", warning.option}.intersection(arguments.Winfo)
        print(replace(warning, severity="info") if noted else warning, file=sys.stderr)
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
        files[Path(name)] = _P4INFO[_FORMATS.get(Path(name).suffix, "text")](compiled)
    if arguments.p4runtime_file:
        files[arguments.p4runtime_file] = _P4INFO[arguments.p4runtime_format](compiled)
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
