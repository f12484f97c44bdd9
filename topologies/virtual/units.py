"""Virtual time is counted in whole picoseconds: at 400 Gb/s a byte takes 20 of them, and int64 holds 106 days."""

SECOND = 10**12
MICROSECOND = SECOND // 10**6


def not_before(seconds: float) -> int:
    """The first picosecond that, as a float in seconds, is not before `seconds`."""
    nearest = round(seconds * SECOND)
    return nearest if nearest / SECOND >= seconds else nearest + 1
