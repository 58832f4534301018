"""Bytes that all connections together hold: requests being read, read ahead, and unsent replies.

Pure: it counts, and knows no connection.
"""


class Budget:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, count: int) -> bool:
        """False if there is no room for so many more; nothing is taken then."""
        if self.held + count > self.limit:
            return False
        self.held += count
        return True

    def charge(self, count: int) -> None:
        """For bytes that exist already, such as a reply that the client does not take."""
        self.held += count

    def give(self, count: int) -> None:
        self.held -= count


class Share:
    """What one connection holds of the budget."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._held = 0
        self._unread = 0  # of the body that is being read
        self._unsent = 0  # of replies that the client does not take

    def read(self, count: int) -> bool:
        """More bytes of a body; False if there is no room for them."""
        if not self._budget.take(count):
            return False
        self._held += count
        self._unread += count
        return True

    def hand_over(self) -> None:
        """The body is whole: its bytes stay held until `give`."""
        self._unread = 0

    def give_unread(self) -> None:
        """The body is not read on."""
        self.give(self._unread)
        self._unread = 0

    def unsent(self, count: int) -> None:
        """Bytes of replies wait for the client, now so many."""
        self.give(self._unsent)
        self._budget.charge(count)
        self._held += count
        self._unsent = count

    def give(self, count: int) -> None:
        freed = min(count, self._held)  # a connection that is lost has given back all
        self._held -= freed
        self._budget.give(freed)

    def give_all(self) -> None:
        self.give(self._held)
