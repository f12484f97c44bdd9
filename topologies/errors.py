"""The error of a network that cannot be built or that has broken."""


class NetworkError(RuntimeError):
    """A network that cannot be built, or that has lost a switch; the message explains which part, and how to fix it."""
