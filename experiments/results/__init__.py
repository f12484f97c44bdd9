"""Results: what was measured and checked, in files, tables and figures."""
