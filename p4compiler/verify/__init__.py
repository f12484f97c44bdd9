"""Invariants that hold after each phase for every program. A violation is a bug of the compiler."""
