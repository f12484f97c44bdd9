"""Random scenarios of in-network all-reduces in virtual time, each checked for what must hold in all of them.

These conditions must hold:

- Every sum of every job is exact, bit for bit.
- Each chunk is delivered once.
- Every worker finishes within a bound.
- Nothing is left over.
- No packet has met a rule that faults of links, stalls and restarts cannot explain.

A scenario is drawn from its seed, and replays exactly. One that fails is shrunk.
"""
