"""The tables that a scenario may have: what each may say, and what is wrong with it by itself."""
