"""Random scenarios of in-network all-reduces in virtual time, each checked for what must hold in all of them.

Every sum of every job is exact, bit for bit; each chunk is delivered once; every worker finishes within a bound;
nothing is left over, and no packet has met a rule that faults of links, stalls and restarts cannot explain. A scenario
is drawn from its seed, and replays exactly. One that fails is shrunk.
"""
