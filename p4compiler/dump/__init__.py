"""Programs as text, after each phase of the compiler: to be read, and compared with what is expected."""
