"""Translation from a `Program` to the C that runs it."""

from fanin.p4switch.codegen.translate import translate

__all__ = ["translate"]
