"""The jobs of a network: their slots and ports, their members, and their leases."""
