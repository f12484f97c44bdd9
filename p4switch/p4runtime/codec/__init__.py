"""Conversion between P4Runtime's values, matches and actions and the engine's."""
