"""What goes wrong in the control plane."""


class ControllerError(RuntimeError):
    """A job that cannot be placed, or a switch that refuses: the message names the switch and the entry."""


class ProgramMismatchError(ControllerError):
    """A program lacks what the controller writes or reads: the message lists all of it."""


class UnavailableError(ControllerError):
    """A switch is not there, or has lost the session: what it was asked last may or may not have been done."""


class SupersededError(ControllerError):
    """Another controller has become the switch's primary since: nothing was done."""
