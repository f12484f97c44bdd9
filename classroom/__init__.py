"""Labs for a class: what a student starts, checks and asks hints for, and how a teacher marks them."""
