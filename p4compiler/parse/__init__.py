"""The front: files -> tokens -> the syntax tree."""
