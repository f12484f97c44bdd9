"""Live networks on this machine: built in Mininet, with switches and controllers as processes, and observed."""
