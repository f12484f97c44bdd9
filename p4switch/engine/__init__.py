"""The engine: a program that runs, and what the control plane can do to it."""
