"""How long who looks at everything rests afterwards, so that looking is not all that is done."""

SHARE = 0.02  # of a core at most, where nobody waits for what is seen


def rest_s(spent_s: float, share: float = SHARE) -> float:
    """After work that took so long of the processor: then it takes this share of a core at most."""
    return spent_s * (1 / share - 1)
