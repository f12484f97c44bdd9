"""Text dumps of a program after each phase of the compiler, to read and to compare in tests."""
