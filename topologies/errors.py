"""What goes wrong with a network that is being built or runs."""


class NetworkError(RuntimeError):
    """A network that cannot be built, or whose switch is gone: the message says which part, and the fix."""
