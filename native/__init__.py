"""Loading of C from Python: compilation within limits, a cache by content, and checks of shared structs and numbers."""
