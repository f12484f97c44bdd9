"""Reader from BMv2 JSON to a `Program`."""

from fanin.p4switch.reader.read import read_program, without_folders

__all__ = ["read_program", "without_folders"]
