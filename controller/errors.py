"""Errors of the control plane."""

from fanin.native.python_file import DeliberateError


class ControllerError(DeliberateError):
    """A job that cannot be placed, or a refusal by a switch: the message names the switch and the entry."""


class ProgramMismatchError(ControllerError):
    """A program without everything that the controller uses: the message lists what is missing."""


class UnavailableError(ControllerError):
    """A lost session, or a switch that does not run: the last request may or may not have been carried out."""


class SupersededError(ControllerError):
    """A refusal by a switch whose primary is another controller now: nothing was done."""
