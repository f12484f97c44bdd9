"""Reader from BMv2 JSON to a `Program`."""

from fanin.p4switch.bmv2json.reader.read import read_program, without_folders

__all__ = ["read_program", "without_folders"]
