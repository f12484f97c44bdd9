"""ns-3 beside virtual time."""
