"""The engine: a running program, and the control plane's access to it."""
