"""What ends the benchmark."""


class BenchError(RuntimeError):
    """Something is wrong, and the figures would be too; the message says what."""
