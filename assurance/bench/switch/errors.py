"""The error that ends the benchmark of the switch."""


class SwitchBenchError(RuntimeError):
    """Something is wrong, and the figures would be too. The message explains what."""
