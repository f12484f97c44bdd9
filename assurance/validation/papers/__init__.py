"""Published results of papers, and the same in virtual time: whether the shapes agree, and why figures differ."""
