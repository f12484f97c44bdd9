"""The P4Runtime service."""
