"""Translation from a `Program` to the C that runs it."""
