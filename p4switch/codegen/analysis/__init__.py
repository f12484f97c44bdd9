"""What is found out about a program before its C is written."""
