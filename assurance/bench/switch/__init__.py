"""Speed of the switch compared with a bare loop in C and with BMv2: generated traffic on veth pairs in a sandbox."""
