"""How fast the switch is, beside a bare loop in C and BMv2: generated traffic on veth pairs in a sandbox."""
