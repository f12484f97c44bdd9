"""A network as plain data, and what builds it for real."""
