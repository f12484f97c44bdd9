"""The front end: files -> tokens -> the syntax tree."""
