"""From BMv2 JSON to a `Program`."""

from p4switch.bmv2json.reader.read import read_program

__all__ = ["read_program"]
