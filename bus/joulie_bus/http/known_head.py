"""Recognizes a request head that was parsed before, by comparing bytes."""

from typing import NamedTuple

from joulie_bus.http.exchange import Body

DIGITS = 8  # of the length of a body that comes in one piece
_LENGTH = b"\r\nContent-Length: "  # on a line of its own, whatever other lines say


class KnownHead(NamedTuple):
    """A parsed head as bytes. A request with the same head, except for the digits of its
    Content-Length, needs no parsing: it has the same method and path.
    """

    before: bytes  # the digits of the length
    after: bytes
    method: str
    path: str

    @classmethod
    def of(cls, data: bytes, body: Body, method: str, path: str) -> "KnownHead | None":
        """None unless the data is exactly one head with one Content-Length, and this body."""
        head = data[: len(data) - len(body)]
        before, named, rest = head.partition(_LENGTH)
        digits, _, after = rest.partition(b"\r\n")
        is_one = head.find(b"\r\n\r\n") == len(head) - 4
        if not (is_one and named and int(digits) == len(body)):
            return None
        return cls(before + named, b"\r\n" + after, method, path)

    def body_of(self, data: bytes) -> bytes | None:
        """The body, or None if the data is not exactly one request with this head."""
        if not data.startswith(self.before):
            return None
        at = len(self.before)
        end = data.find(b"\r", at, at + DIGITS)
        start = end + len(self.after)
        if end < 0 or not data.startswith(self.after, end) or not data[at:end].isdigit():
            return None
        return data[start:] if int(data[at:end]) == len(data) - start else None
