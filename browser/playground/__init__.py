"""The playground: a program in an editor, packets through it, and each step of their way."""
