"""Management calls of a running switch beside P4Runtime."""
