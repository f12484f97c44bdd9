"""Evidence that fanin is correct and fast: soak, fuzzing, differential tests, validation, and benchmarks."""
