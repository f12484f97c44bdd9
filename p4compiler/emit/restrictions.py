"""Check of the annotations that constrain what controllers write. The switch enforces them."""

from __future__ import annotations

from collections.abc import Mapping

from finsy.proto import p4i

from fanin.p4compiler import nodes
from fanin.p4compiler.source import Span, error
from fanin.p4constraints.annotations import (
    ACTION_RESTRICTION,
    ENTRY_RESTRICTION,
    AnnotationError,
    referenced_table,
    references,
    restriction,
    role,
)
from fanin.p4constraints.language import Constraint, ConstraintError, Type


def check_restriction(annotations: nodes.Annotations, name: str, types: Mapping[str, Type]) -> None:
    """Check an `@entry_restriction` or `@action_restriction`, whose names have these types.

    Raises:
        CompileError: If it is malformed, at the place in its text.
    """
    given = [annotation for annotation in annotations if annotation.name == name]
    for annotation in given:
        try:
            text = restriction([_text(annotation)], name)
            assert text is not None
            Constraint.parse(text, types)
        except AnnotationError as malformed:
            raise error(annotation.span, str(malformed), f'write @{name}("key == 1")') from None
        except ConstraintError as wrong:
            raise error(_place(annotation, wrong.offset), f"@{name}: {wrong.message}") from None


def check_placement(annotations: nodes.Annotations, *, of_table: bool) -> None:
    """Check that a restriction is where it has a meaning, and that a role has a name.

    Raises:
        CompileError: If an action has an `@entry_restriction`, a table an `@action_restriction`, or a role no name.
    """
    wrong, right = (ACTION_RESTRICTION, "an action") if of_table else (ENTRY_RESTRICTION, "a table")
    for annotation in annotations:
        if annotation.name == wrong:
            raise error(annotation.span, f"@{wrong} has no effect here: it belongs before {right}")
    try:
        role(_text(annotation) for annotation in annotations)
    except AnnotationError as malformed:
        [first, *_] = [a for a in annotations if a.name == "p4runtime_role"]
        raise error(first.span, str(malformed), 'write @p4runtime_role("name")') from None


def check_references(annotations: nodes.Annotations, p4info: p4i.P4Info) -> None:
    """Check every `@refers_to`. A table that the program does not have may belong to a larger program.

    Raises:
        CompileError: If one is malformed, or its table has no such key field.
    """
    for annotation in annotations:
        if annotation.name != "refers_to":
            continue
        try:
            [reference] = references([_text(annotation)])
        except AnnotationError as malformed:
            raise error(annotation.span, str(malformed), "write @refers_to(table, field)") from None
        table = referenced_table(p4info, reference.table)
        fields = [] if table is None else [field.name for field in table.match_fields]
        if table is not None and reference.field not in fields:
            message = f"@refers_to: table '{reference.table}' has no key field '{reference.field}'"
            raise error(annotation.span, message, f"its key has {', '.join(fields)}")


def _text(annotation: nodes.Annotation) -> str:
    return f"@{annotation.name}({annotation.text})"


def _place(annotation: nodes.Annotation, offset: int) -> Span:
    """Return the place of a position in the text of an annotation's string."""
    string = next((a for a in annotation.arguments if isinstance(a, nodes.String)), None)
    if string is None or len(annotation.arguments) > 1:
        return annotation.span
    before = string.value[:offset].split("\n")
    line = string.span.line + len(before) - 1
    column = len(before[-1]) + (string.span.column + 1 if len(before) == 1 else 0)
    return Span(string.span.file, line, column, line, column + 1, string.span.expansion)
