"""What is done for each packet of a worker: with numpy, and the same in C."""
