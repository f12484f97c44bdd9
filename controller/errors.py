"""What goes wrong in the control plane."""


class ControllerError(RuntimeError):
    """A job that cannot be placed, or a switch that refuses: the message names the switch and the entry."""
