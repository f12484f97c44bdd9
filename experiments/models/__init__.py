"""Models of a run: its exact sums, and predictions of its time from latency and bandwidth."""
