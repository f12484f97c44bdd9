"""Write recorded requests of other clients to our switch, and read the entries back: docs/measurements/courses.md.

    python -m tests.p4switch.p4runtime.recorded PROGRAM.p4 REQUEST.txtpb [-I FOLDER]

REQUEST.txtpb is a `p4.v1.WriteRequest` in text format. Its ids are those of p4c's P4Info for the program.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from finsy.proto import p4r
from google.protobuf import text_format

from fanin.p4compiler import CompileError, compile_file
from fanin.p4switch.p4runtime.device import Device
from fanin.p4switch.p4runtime.server import P4RuntimeService, serve
from tests.p4switch.p4runtime.conftest import CPU_PORT, DEVICE_ID, Controller, Program, Refused


@contextmanager
def switch(program: Path, include: list[Path]) -> Iterator[Controller]:
    """Run a switch with the program, and yield its primary controller."""
    compiled = compile_file(program, include_dirs=include)
    device = Device({}, CPU_PORT, drop_port=511)
    server, port = serve(P4RuntimeService(device, DEVICE_ID), "127.0.0.1:0")
    controller = Controller(f"127.0.0.1:{port}").become_primary()
    try:
        controller.set_pipeline(Program(compiled.p4info, compiled.device_config()).config)
        yield controller
    finally:
        controller.close()
        server.stop(grace=0).wait()
        device.stop()


def canonical(entry: p4r.TableEntry) -> bytes:
    """Return an entry with its match fields in order and its values in the shortest form, for comparison."""
    made = p4r.TableEntry()
    made.CopyFrom(entry)
    match = sorted(made.match, key=lambda field: field.field_id)
    del made.match[:]
    made.match.extend(match)
    values = [(parameter, "value") for parameter in made.action.action.params]
    for field in made.match:
        part = getattr(field, field.WhichOneof("field_match_type"))
        values += [(part, of.name) for of in part.DESCRIPTOR.fields if of.type == of.TYPE_BYTES]
    for message, name in values:
        setattr(message, name, getattr(message, name).lstrip(b"\0") or b"\0")
    return made.SerializeToString(deterministic=True)


def main() -> int:
    """Print how many updates were accepted, and how many entries are read as they were written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", type=Path)
    parser.add_argument("request", type=Path)
    parser.add_argument("-I", dest="include", type=Path, action="append", default=[])
    options = parser.parse_args()
    request = text_format.Parse(options.request.read_text(), p4r.WriteRequest())
    try:
        with switch(options.program, options.include) as controller:
            refused: list[str] = []
            try:
                controller.write(*((p4r.Update.Type.Name(u.type), u.entity) for u in request.updates))
            except Refused as error:
                refused = [each.message for each in error.details if each.canonical_code]
            read = {
                canonical(e.table_entry) for e in controller.read(p4r.Entity(table_entry=p4r.TableEntry()))
            }
    except CompileError as error:
        parser.error(str(error))
    written = [u.entity.table_entry for u in request.updates if u.entity.HasField("table_entry")]
    print(*refused, sep="\n", end="\n" * bool(refused))
    print(f"{len(request.updates) - len(refused)} of {len(request.updates)} updates accepted", end=", ")
    print(f"{sum(canonical(entry) in read for entry in written)} of {len(written)} entries read as written")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
