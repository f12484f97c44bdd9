"""`fanin compile`: P4_16 to BMv2 JSON and P4Info."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from fanin.cli_errors import failing, failure
from fanin.options import file_to_write
from fanin.output import say
from fanin.programs import Define, Include, macros, show_warnings

Phase = Literal["parse", "check", "inline", "lower", "graph"]


def compile_program(
    program: Annotated[
        Path,
        typer.Argument(exists=True, dir_okay=False, help="P4_16 source for v1model or PSA"),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            parser=file_to_write,
            metavar="FILE",
            help="File for the BMv2 JSON; PROGRAM.json by default",
        ),
    ] = None,
    p4info: Annotated[
        Path | None,
        typer.Option(
            parser=file_to_write,
            metavar="FILE",
            help="File for the P4Info as protobuf text; next to the JSON as .p4info.txtpb by default",
        ),
    ] = None,
    c: Annotated[
        Path | None,
        typer.Option(
            "--c",
            parser=file_to_write,
            metavar="FILE",
            help="File for the C code that our switch generates (docs/explanation/generated-c.md)",
        ),
    ] = None,
    include: Include = None,
    define: Define = None,
    werror: Annotated[
        bool, typer.Option("--werror", help="Treat warnings as errors and write nothing")
    ] = False,
    disabled: Annotated[
        list[str] | None,
        typer.Option(
            "--Wdisable",
            metavar="NAME",
            help="Omit the warnings with this name (docs/reference/messages.md); may be repeated",
        ),
    ] = None,
    errors: Annotated[
        list[str] | None,
        typer.Option("--Werror", metavar="NAME", help="Treat the warnings with this name as errors"),
    ] = None,
    warned: Annotated[
        list[str] | None,
        typer.Option("--Wwarn", metavar="NAME", help="Do not treat the warnings with this name as errors"),
    ] = None,
    dump: Annotated[
        Phase | None,
        typer.Option("--dump-after", help="Only print the program after this phase of the compiler"),
    ] = None,
) -> None:
    """Compile a P4_16 program to BMv2 JSON and P4Info.

    The output has the format of p4c-bm2-ss, and BMv2 runs it as well. Errors name the file, the line and the fix.

    Examples:
        fanin compile program.p4
        fanin compile p4src/fanin.p4 --c fanin.c
    """
    # Imported here to keep --help and the refusal of wrong options fast.
    from fanin.p4compiler import WARNINGS, CompileError, compile_file, dump_after, graded
    from fanin.p4switch.bmv2json.program import ProgramError
    from fanin.p4switch.codegen.translate import translate
    from fanin.p4switch.reader import read_program

    defines = macros(define)
    for option, names in {"--Wdisable": disabled, "--Werror": errors, "--Wwarn": warned}.items():
        for name in names or ():
            if name not in WARNINGS:
                known = ", ".join(WARNINGS)
                message = f"{option} {name}: no warning has this name; the names are {known}"
                raise failure("compile", message, 2)
    try:
        if dump is not None:
            text, warnings = dump_after(dump, program, include_dirs=include or (), defines=defines)
        else:
            compiled = compile_file(program, include_dirs=include or (), defines=defines)
            warnings = compiled.warnings
    except CompileError as error:
        say(error, err=True)
        raise typer.Exit(1) from None
    except OSError as error:
        raise failure("compile", f"{program}: cannot be read: {error.strerror}", 2) from None
    grave = ["", *(errors or ())] if werror else errors or ()
    shown, refused = graded(warnings, disabled or (), grave, warned or ())
    show_warnings(shown)
    if refused:
        say(CompileError(refused), err=True)
        raise typer.Exit(1)
    if dump is not None:
        say(text, nl=False)
        return
    config = compiled.json_text()
    output = output or Path(program.name).with_suffix(".json")
    files = {output: config, p4info or output.with_suffix(".p4info.txtpb"): compiled.p4info_text()}
    if c is not None:
        with failing("compile", ProgramError):
            files[c] = translate(read_program(config.encode()))
    for path, text in files.items():
        try:
            path.write_text(text)
        except OSError as error:
            raise failure("compile", f"{path} cannot be written: {error.strerror}") from None
        say(f"wrote {path}")
