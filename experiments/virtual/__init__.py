"""Virtual points: a network of the simulator, the compiled program, and the same workers as in a live network."""
