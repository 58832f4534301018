"""Bytes that all connections together hold: requests being read, read ahead, and unsent replies."""


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
