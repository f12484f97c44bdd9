"""The processing of a worker's packets: with numpy, and the same in C."""
