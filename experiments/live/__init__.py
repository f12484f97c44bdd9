"""Live runs: a network, the controller, and a process for each worker."""
