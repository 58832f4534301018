"""Collections for values of which each position has its own: a change copies only a part.

A reader that holds an older one still sees it as it was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar, overload

V = TypeVar("V")
_CHUNK = 128
_MOST_CHANGES = 256


class KeptList(Sequence[V], Generic[V]):
    """In chunks, of which a change copies one."""

    def __init__(self, values: Iterable[V] = ()) -> None:
        found = list(values)
        self._chunks = [found[at : at + _CHUNK] for at in range(0, len(found), _CHUNK)]
        self._length = len(found)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, at: int) -> V: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[V]: ...
    def __getitem__(self, at: int | slice) -> V | Sequence[V]:
        if isinstance(at, slice):
            return list(self)[at]
        if not -self._length <= at < self._length:
            raise IndexError(at)
        at %= self._length
        return self._chunks[at // _CHUNK][at % _CHUNK]

    def __iter__(self) -> Iterator[V]:
        for chunk in self._chunks:
            yield from chunk

    def following(self, changes: Mapping[int, V]) -> "KeptList[V]":
        """With these values; those of the next places are appended."""
        found, own = KeptList[V](), set[int]()
        found._chunks, found._length = list(self._chunks), self._length
        for at, value in sorted(changes.items()):
            number, place = divmod(at, _CHUNK)
            if number == len(found._chunks):
                found._chunks.append([])
                own.add(number)
            if number not in own:
                found._chunks[number] = list(found._chunks[number])
                own.add(number)
            found._chunks[number][place : place + 1] = [value]
            found._length = max(found._length, at + 1)
        return found


class KeptDict(Mapping[str, V], Generic[V]):
    """Changes are on top of a dictionary that many positions share. `None` removes a key."""

    def __init__(self, values: Mapping[str, V] | None = None) -> None:
        self._base: dict[str, V] = dict(values or {})
        self._changes: dict[str, V | None] = {}
        self._length = len(self._base)

    def __len__(self) -> int:
        return self._length

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str) and key in self._changes:
            return self._changes[key] is not None
        return key in self._base

    def __getitem__(self, key: str) -> V:
        found = self._changes[key] if key in self._changes else self._base[key]
        if found is None:
            raise KeyError(key)
        return found

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not None)

    def following(self, changes: Mapping[str, V | None]) -> "KeptDict[V]":
        if not changes:
            return self
        found = KeptDict[V]()
        found._base, found._changes = self._base, self._changes | dict(changes)
        added = sum((value is not None) - (key in self) for key, value in changes.items())
        found._length = self._length + added
        return found if len(found._changes) <= _MOST_CHANGES else KeptDict(found)
