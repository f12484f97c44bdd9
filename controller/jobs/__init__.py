"""The jobs of a network: what they hold, who is in them, and what was granted."""
