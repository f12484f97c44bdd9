"""Comparison of one program from two compilers on two switches: entries and packets must do the same on all of them."""
