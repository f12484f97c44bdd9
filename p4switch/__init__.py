"""A v1model software switch: BMv2 JSON translated to native code, with packet ports and a P4Runtime server."""
