"""What made a run slow, from what was measured in it."""
