"""One program by two compilers on two switches: the same entries and packets must do the same on all of them."""
