"""The pause after periodic work, which limits its share of a core."""

SHARE = 0.02  # of a core at most, for work that no request waits for


def rest_s(spent_s: float, share: float = SHARE) -> float:
    """The pause after work of `spent_s` CPU seconds, which takes at most this share of a core."""
    return spent_s * (1 / share - 1)
