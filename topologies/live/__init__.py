"""Networks of this machine: namespaces, switches and hosts as processes, and who finds them."""
