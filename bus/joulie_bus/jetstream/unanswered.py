"""When a client leaves a server of the broker that gives no answers. Knows no clock.

A server passes messages to each other server directly, never through a third one. If the link
between two of them is cut, a client of the first cannot reach what the second leads.
"""

from joulie_bus.core.backoff import Backoff

IN_VAIN_S = 4.0  # without an answer: another server of the cluster may reach what answers
ELECTION_S = 10.0  # with answers that nothing is led: an election is over by then
LONGEST_STAY_S = 60.0  # at a server without answers, if others had none either


class Unanswered:
    """Times are those of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        # By kind of request: when the first and the last that have no answer were sent.
        self._in_vain: dict[str, tuple[float, float]] = {}
        self._stays = Backoff(2 * IN_VAIN_S, LONGEST_STAY_S)
        self._stays_until = 0.0
        self._left_at = 0.0
        self._left = 0  # servers, since the stays began anew
        self._reasons = set[str]()  # of those, for which there is no answer since

    def is_long(self, kind: str, asked_at: float, now: float, patience_s: float) -> bool:
        """Notes that a request has no answer: whether its kind has had none for so long."""
        since, last = self._in_vain.get(kind, (asked_at, asked_at))
        if asked_at - last > LONGEST_STAY_S:
            since = asked_at  # that one was another failure
        self._in_vain[kind] = since, asked_at
        return now - since >= patience_s

    def answered(self, kind: str) -> None:
        self._in_vain.pop(kind, None)
        self._reasons -= {each for each in self._reasons if each.endswith(kind)}

    def stays(self, now: float) -> bool:
        """Whether a server that was reached after another one was left is kept for now."""
        return now < self._stays_until

    def left(self, now: float, servers: int, why: str) -> bool:
        """If none of the servers answers, as without a majority, the next stays become longer.

        Until each was tried, the next one is left as soon as it gave no answers for as long.
        Returns whether the reason is news: no server was left for it since the last answer.
        """
        if now > self._left_at + 2 * LONGEST_STAY_S:
            self._stays.succeeded()
            self._left = 0
            self._reasons.clear()
        is_news = why not in self._reasons
        self._reasons.add(why)
        self._left += 1
        stay = IN_VAIN_S if self._left % servers else self._stays.failed()
        self._left_at, self._stays_until = now, now + stay
        self._in_vain.clear()
        return is_news
