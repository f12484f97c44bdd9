"""The controller of a running network, in processes of its own: one in charge, and optionally a standby."""
