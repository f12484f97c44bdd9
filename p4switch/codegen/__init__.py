"""From a `Program` to the C that runs it."""

from p4switch.codegen.translate import translate

__all__ = ["translate"]
