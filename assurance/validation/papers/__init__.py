"""What papers have published, and the same in virtual time: whether the shapes are the same, and why figures differ."""
