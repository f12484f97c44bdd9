"""STF, p4c's simple test format."""
