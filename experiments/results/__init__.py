"""Results: measurements and checks, in files, tables and figures."""
