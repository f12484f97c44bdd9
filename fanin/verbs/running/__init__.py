"""The verbs that keep a network up, and those that look into one and change it."""
