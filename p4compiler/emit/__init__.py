"""The back end: flat blocks -> BMv2's JSON, and the program's P4Info."""
