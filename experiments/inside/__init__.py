"""What goes on inside a network that is up: a look at all of it, why a job stands still, metrics."""
