"""Reads messages of protocol buffers, as far as PodResources has them.

The whole library for one message of five levels would cost 7 MiB on each node.
https://protobuf.dev/programming-guides/encoding describes the format.
"""

from collections.abc import Iterator

FIXED_SIZES = {1: 8, 5: 4}  # by wire type; 0 is a number, 2 has its length in front
MOST_FIELDS = 500_000  # half a second; a kubelet with 250 pods answers with about 20,000


class BadMessage(ValueError):
    """Bytes that are no message of protocol buffers."""


class Messages:
    """Reads one message and those within it. Nested fields are read again, and count again."""

    def __init__(self, most_fields: int = MOST_FIELDS) -> None:
        self._most = self._left = most_fields

    def fields(self, data: bytes) -> Iterator[tuple[int, int | bytes]]:
        """The fields of a message in their order: their numbers and values. Raises BadMessage."""
        at = 0
        while at < len(data):
            self._count()
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            match kind:
                case 0:
                    value, at = _varint(data, at)
                    yield number, value
                case 1 | 2 | 5:
                    size = FIXED_SIZES.get(kind)
                    if size is None:
                        size, at = _varint(data, at)
                    if at + size > len(data):
                        raise BadMessage(f"field {number} is longer than its message")
                    yield number, data[at : at + size]
                    at += size
                case _:
                    raise BadMessage(f"field {number} has the unknown wire type {kind}")

    def parts(self, data: bytes, number: int) -> Iterator[bytes]:
        """The values of a repeated field of messages or texts. Raises BadMessage."""
        for found, value in self.fields(data):
            if found == number:
                if not isinstance(value, bytes):
                    raise BadMessage(f"field {number} is a number")
                yield value

    def text(self, data: bytes, number: int) -> str:
        """The last value of a field of text; "" if it is absent. Raises BadMessage."""
        found = b""
        for value in self.parts(data, number):
            found = value
        return _decoded(found)

    def texts(self, data: bytes, number: int) -> list[str]:
        return [_decoded(value) for value in self.parts(data, number)]

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise BadMessage(f"it has more than {self._most:,} fields")


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise BadMessage("a text is not UTF-8") from error


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise BadMessage("it ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadMessage("a number has more than ten bytes")
