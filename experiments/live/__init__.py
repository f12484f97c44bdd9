"""Live points: a network of the testbed, the controller, and a process for each worker."""
