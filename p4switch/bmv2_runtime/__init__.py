"""BMv2's runtime interface over Thrift, on the same engine as P4Runtime."""
