"""Which witnesses cosign the log, and how many of them must: a policy of C2SP (`tlog-policy`).

    log joulie/3fQ2xPb1hK0A+5d1f0a3c+AV...
    witness w1 w1.example.com+8d3a6f6c+BKz... https://w1.example.com
    witness w2 w2.example.com+11aa22bb+BNu... https://w2.example.org
    group both all w1 w2
    quorum both

The names mean nothing outside of the file. Two keys are the same witness if they are the same key
under different names.
"""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from joulie_bus.core.http_head import is_loopback
from joulie_projections.chain.note import LOG_KEY, WITNESS_KEY, NotANote, VerifierKey

MOST_BYTES = 1 << 20
NONE = "none"  # the quorum without a witness
_NOT_ALLOWED = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
_BLANK = re.compile(r"[ \t]+")


class WitnessPlace(NamedTuple):
    key: VerifierKey
    url: str  # empty: it cannot be asked


class Group(NamedTuple):
    """Met by as many of its members, which are witnesses or groups."""

    least: int
    members: Sequence[str]


class Policy(NamedTuple):
    witnesses: Mapping[str, WitnessPlace] = {}
    groups: Mapping[str, Group] = {}
    quorum: str = NONE
    logs: Sequence[VerifierKey] = ()  # empty: any log

    @property
    def places(self) -> tuple[WitnessPlace, ...]:
        return tuple(self.witnesses.values())

    def is_met_by(self, confirming: Container[bytes]) -> bool:
        """By these keys of witnesses."""
        return self.quorum == NONE or self._is_met(self.quorum, confirming)

    def _is_met(self, name: str, confirming: Container[bytes]) -> bool:
        if name in self.witnesses:
            return self.witnesses[name].key.raw in confirming
        group = self.groups[name]
        return sum(self._is_met(each, confirming) for each in group.members) >= group.least

    @property
    def demand(self) -> str:
        """What the quorum demands, in words."""
        if self.quorum == NONE:
            return "none"
        if self.quorum in self.witnesses:
            return self.quorum
        group = self.groups[self.quorum]
        named = f" of the policy ({', '.join(group.members)})" if self.quorum else ""
        return f"{group.least} of {len(group.members)}{named}"


def at_least(places: Iterable[WitnessPlace], least: int = 0) -> Policy:
    """So many of these witnesses, or more than half of them. Raises ValueError if one of them is
    named twice."""
    found = dict[str, WitnessPlace]()
    for place in places:
        _require_new(place.key, [known.key for known in found.values()])
        found[str(place.key)] = place
    if not found:
        return Policy()
    group = Group(least or len(found) // 2 + 1, tuple(found))
    return Policy(found, {"": group}, "")


def witness_place(text: str) -> WitnessPlace:
    """a witness as KEY@URL; `joulie witness` prints its KEY"""
    key, _, url = text.partition("@")
    parsed = VerifierKey.parse(key)
    if parsed.kind != WITNESS_KEY:
        raise ValueError(f"{parsed.name} is the key of a log, not of a witness")
    return WitnessPlace(parsed, _url_of_witness(url))


def _url_of_witness(url: str) -> str:
    """TLS, or nothing beyond this machine: a host between could answer in its place."""
    found = urlsplit(url)
    host = found.hostname or ""
    if found.scheme not in ("http", "https") or not host:
        raise ValueError("not a witness as KEY@URL, such as w1+8d3a6f6c+BKz...@https://w1:9880")
    if found.scheme == "http" and not is_loopback(host):
        raise ValueError(f"{url}: beyond loopback a witness is asked by https:// only")
    return url


def _require_new(key: VerifierKey, known: Iterable[VerifierKey]) -> None:
    if key.raw in {each.raw for each in known}:
        raise ValueError(f"{key.name} is named twice: one key is one witness, or one log")


# --- the file -----------------------------------------------------------------------------------


def parsed(content: bytes) -> Policy:
    """Raises ValueError with the line and the reason."""
    if len(content) > MOST_BYTES:
        raise ValueError(f"longer than {MOST_BYTES} bytes")
    reader = _Reader()
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            if _NOT_ALLOWED.search(line):
                raise ValueError("it has a control character")
            words = _BLANK.split(line.decode("utf-8", "surrogateescape").strip(" \t"))
            if words[0] and not words[0].startswith("#"):
                reader.take(words)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    if reader.quorum is None:
        raise ValueError("it has no quorum line")
    return Policy(reader.witnesses, reader.groups, reader.quorum, reader.logs)


class _Reader:
    """The lines so far: each names only what earlier ones defined."""

    def __init__(self) -> None:
        self.logs = list[VerifierKey]()
        self.witnesses = dict[str, WitnessPlace]()
        self.groups = dict[str, Group]()
        self.quorum: str | None = None
        self._members = set[str]()

    def take(self, words: Sequence[str]) -> None:
        match words:
            case ["log", key] | ["log", key, _]:
                self._log(key)
            case ["witness", name, key]:
                self._witness(name, key, "")
            case ["witness", name, key, url]:
                self._witness(name, key, _url_of_witness(url))
            case ["group", name, least, first, *rest]:
                self._group(name, least, (first, *rest))
            case ["quorum", name]:
                self._quorum(name)
            case _:
                raise ValueError(
                    "not `log KEY [URL]`, `witness NAME KEY [URL]`, `group NAME all|any|N NAME...` "
                    "or `quorum NAME|none`"
                )

    def _log(self, key: str) -> None:
        parsed_key = _key(key, LOG_KEY)
        _require_new(parsed_key, self.logs)
        self.logs.append(parsed_key)

    def _witness(self, name: str, key: str, url: str) -> None:
        parsed_key = _key(key, WITNESS_KEY)
        _require_new(parsed_key, [known.key for known in self.witnesses.values()])
        self._require_free(name)
        self.witnesses[name] = WitnessPlace(parsed_key, url)

    def _group(self, name: str, least: str, members: tuple[str, ...]) -> None:
        self._require_free(name)
        for member in members:
            self._require_defined(member)
            if member in self._members:
                raise ValueError(f"{member} is a member already")
            self._members.add(member)
        needed = {"all": str(len(members)), "any": "1"}.get(least, least)
        if not (needed.isascii() and needed.isdecimal() and 1 <= int(needed) <= len(members)):
            raise ValueError(f"{least} is not all, any, or a number from 1 to {len(members)}")
        self.groups[name] = Group(int(needed), members)

    def _quorum(self, name: str) -> None:
        if self.quorum is not None:
            raise ValueError("the quorum is defined already")
        if name != NONE:
            self._require_defined(name)
        self.quorum = name

    def _require_free(self, name: str) -> None:
        if name == NONE or name in self.witnesses or name in self.groups:
            raise ValueError(f"{name} is defined already")

    def _require_defined(self, name: str) -> None:
        if name not in self.witnesses and name not in self.groups:
            raise ValueError(f"no line before this one defines {name}")


def _key(text: str, kind: int) -> VerifierKey:
    try:
        key = VerifierKey.parse(text)
    except NotANote as error:
        raise ValueError(f"{text[:80]}: {error}; Ed25519 is supported") from error
    if key.kind != kind:
        raise ValueError(f"{key.name} is the key of a {'log' if kind != LOG_KEY else 'witness'}")
    return key
