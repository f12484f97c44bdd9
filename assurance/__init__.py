"""How we know that fanin is right and fast: soak, fuzzing, differential tests, validation, and benchmarks."""
