"""The language server: what editors ask about P4 programs."""
