"""Properties of each extern function, and of each method of an extern object."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fanin.p4compiler import ir

if TYPE_CHECKING:
    from fanin.p4compiler.emit.actions import ActionWriter
    from fanin.p4compiler.emit.expressions import Json


@dataclass(frozen=True, slots=True)
class ExternKind:
    """An extern function, or a method of an extern object. `p4compiler/include` declares it.

    Attributes:
        name: Its name; that of a method contains that of the object, as in "register.read".
        emit: Returns the name of the primitive that does its work, and the primitive's parameters in BMv2's JSON.
            None if the target does the work implicitly.
        index: The position of the argument that is an index into the object's cells; None if there is none.
        in_parser: Whether a parser may call it, too.
        takes_expressions: Whether its primitive takes expressions. If not, they are computed beforehand, in variables.
    """

    name: str
    emit: Callable[[ActionWriter, ir.CallExtern], tuple[str, list[Json]] | None]
    index: int | None = None
    in_parser: bool = False
    takes_expressions: bool = False
