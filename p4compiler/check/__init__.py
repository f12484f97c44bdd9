"""Resolution of names and type checking: the syntax tree -> the typed program."""
