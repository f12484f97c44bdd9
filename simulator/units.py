"""Units of virtual time: whole picoseconds. At 400 Gb/s a byte takes 20 of them, and int64 holds 106 days."""

SECOND = 10**12
MICROSECOND = SECOND // 10**6
NEVER = 2**63 - 1


def not_before(seconds: float) -> int:
    """Return the first picosecond that, as a float in seconds, is not before `seconds`; NEVER if int64 holds none."""
    if seconds * SECOND >= NEVER:
        return NEVER
    nearest = round(seconds * SECOND)
    return nearest if nearest / SECOND >= seconds else nearest + 1
