"""A byte limit shared by all connections: request bodies, pipelined requests and unsent replies.

It counts and knows no connection.
"""


class ByteBudget:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, count: int) -> bool:
        """Reserves `count` bytes; returns False and reserves nothing if the limit would be
        exceeded.
        """
        if self.held + count > self.limit:
            return False
        self.held += count
        return True

    def charge(self, count: int) -> None:
        """Counts bytes that exist already, such as unsent replies, even beyond the limit."""
        self.held += count

    def give(self, count: int) -> None:
        self.held -= count


class ConnectionBudget:
    """The part of the budget that one connection holds."""

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._held = 0
        self._unread = 0  # of the body that is being read
        self._unsent = 0  # of replies in the write buffer

    def read(self, count: int) -> bool:
        """Reserves bytes for a body that is being read; False if the budget is exhausted."""
        if not self._budget.take(count):
            return False
        self._held += count
        self._unread += count
        return True

    def hand_over(self) -> None:
        """The body is complete: its bytes stay reserved until `give`."""
        self._unread = 0

    def give_unread(self) -> None:
        """Releases the bytes of a body that is not read any further."""
        self.give(self._unread)
        self._unread = 0

    def unsent(self, count: int) -> None:
        """Sets the number of reply bytes in the write buffer."""
        self.give(self._unsent)
        self._budget.charge(count)
        self._held += count
        self._unsent = count

    def give(self, count: int) -> None:
        freed = min(count, self._held)  # a lost connection has released everything
        self._held -= freed
        self._budget.give(freed)

    def give_all(self) -> None:
        self.give(self._held)
