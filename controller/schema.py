"""finsy's schema of a program, which encodes entries in the program's names."""

from __future__ import annotations

from collections import Counter

from finsy import P4Schema
from finsy.proto import p4i

from fanin.controller.errors import ControllerError


def schema_of(p4info: p4i.P4Info, device_config: bytes | None = None) -> P4Schema:
    """Return the schema of a program.

    Raises:
        ControllerError: If two keys of a table end in the same name, so that finsy cannot distinguish them.
    """
    for table in p4info.tables:
        shared = Counter(field.name.rpartition(".")[2] for field in table.match_fields)
        for last, count in shared.items():
            if count > 1:
                names = [field.name for field in table.match_fields if field.name.rpartition(".")[2] == last]
                raise ControllerError(
                    f"table {table.preamble.name}: the keys {' and '.join(names)} end in the same name, so that "
                    f'finsy cannot distinguish them; give one another name: {names[-1]}: … @name("other")'
                )
    return P4Schema(p4info, device_config)
