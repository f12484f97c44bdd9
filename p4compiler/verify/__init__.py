"""What must hold after each phase whatever the program is: where it does not, the compiler is wrong."""
