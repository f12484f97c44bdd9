"""Management calls to a running switch, in addition to P4Runtime."""
