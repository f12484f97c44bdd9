"""What is observed in a network that is up: a snapshot of all of it, why a job stands still, metrics, and logs."""
