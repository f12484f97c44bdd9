"""The controller of a network that is up, in processes of its own: one that is in charge, and one that may wait."""
