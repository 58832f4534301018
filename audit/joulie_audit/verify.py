"""Re-hashes every entry and checks every link; names the first place that is not what it was.

Nothing is believed because it is stored: bodies are hashed again, columns are compared with what
their body says, signatures are checked, and heads kept outside the database must still fit.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from joulie_audit.producers import Counters, Hole
from joulie_audit.start import opened
from joulie_bus.errors import StateDamaged, Undecodable
from joulie_projections.decisions import FIRST_PREV, UNREADABLE, Entry, entry_of_body
from joulie_projections.heads import Checker, Head, is_genuine
from joulie_projections.history import NEWEST, History, Logged
from joulie_projections.manifest import Manifest, chained


class Flaw(NamedTuple):
    """The first thing that is wrong, and where."""

    place: int
    what: str


class Report(NamedTuple):
    entries: int
    heads: int
    batches: int
    snapshots: int
    holes: Sequence[Hole]  # numbers that a replica used and that never came
    flaw: Flaw | None


class Part(NamedTuple):
    """Entries to look at: `first` to `last`, both included."""

    first: int = 1
    last: int = NEWEST


EVERYTHING = Part()


def verify(
    history: History,
    public: Checker,
    anchored: Sequence[Head],
    part: Part = EVERYTHING,
) -> Report:
    """`anchored` are heads from outside the database; they show what was cut off or replaced."""
    inside = history.heads()
    heads = [head for head in (*inside, *anchored) if part.first <= head.pos <= part.last]
    check = _Check(part.first, {head.pos for head in heads}, counts_all=part.first == 1)
    flaw = check.begin(history)
    for page in history.pages(part.first, part.last):
        flaw = flaw or check.page(page)
        if flaw:
            break
    flaw = flaw or _check_heads(heads, check, public)
    is_whole = part == EVERYTHING
    batches, batch_flaw = _check_manifests(history) if is_whole else (0, None)
    snapshots, snapshot_flaw = _check_snapshots(history) if is_whole else (0, None)
    count = check.pos - part.first + 1
    flaw = flaw or batch_flaw or snapshot_flaw
    return Report(count, len(inside), batches, snapshots, check.counters.holes(), flaw)


# --- entries ----------------------------------------------------------------------------------


class _Pod(msgspec.Struct, gc=False):
    uid: str
    namespace: str
    name: str


class _Basis(msgspec.Struct, gc=False):
    view: int
    now: int


class _About(msgspec.Struct, gc=False):
    """What any entry's data says of pod and view; all the rest is skipped while decoding."""

    pod: _Pod | None = None
    basis: _Basis | None = None
    pod_uid: str = ""
    namespace: str = ""
    name: str = ""


class _Said(msgspec.Struct, gc=False):
    id: str
    type: str
    ts: int
    data: _About


_said = msgspec.msgpack.Decoder(_Said).decode


def columns_said(body: bytes) -> tuple[str, str, str, str, int, int]:
    """The columns of an entry, by the short way: what `entry_of_body` says, a test holds the two.

    Verifying spends most of its time here; whoever fails it is looked at by the long way.
    """
    said = _said(body)
    data = said.data
    pod, basis = data.pod, data.basis
    if pod is not None:
        uid, name = pod.uid, f"{pod.namespace}/{pod.name}"
    elif data.pod_uid:
        uid, name = data.pod_uid, f"{data.namespace}/{data.name}"
    else:
        uid, name = "", ""
    if basis is None:
        return said.id, said.type, uid, name, 0, said.ts
    return said.id, said.type, uid, name, basis.view, basis.now


UNREADABLE_BODY = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Check:
    """Goes along the chain; remembers the hashes that some head speaks of."""

    def __init__(self, first: int, wanted: set[int], *, counts_all: bool) -> None:
        self.pos = first - 1
        self.hashes: dict[int, bytes] = {}
        self.counters = Counters(from_one=counts_all)
        self._prev = FIRST_PREV
        self._wanted = wanted

    def begin(self, history: History) -> Flaw | None:
        """The entry before the first lends its hash; it is not looked at itself."""
        if self.pos == 0:
            return None
        before = next(history.entries(self.pos, self.pos), None)
        if before is None:
            return Flaw(self.pos, f"entry {self.pos} is missing; nothing can follow it")
        self._prev = before.hash
        return None

    def page(self, rows: Iterable[Sequence[Any]]) -> Flaw | None:
        """The hot loop: plain rows, no names."""
        here, before, wanted = self.pos, self._prev, self._wanted
        seen, said = self.counters.seen, columns_said
        for row in rows:
            pos, event_id, _, _, _, _, _, body, prev, found = row
            here += 1
            if pos != here or prev != before or sha256(prev + body).digest() != found:
                return self._flaw(here, _link_flaw(Logged._make(row), here, before))
            try:
                is_said = said(body) == row[1:7]
            except UNREADABLE_BODY:
                is_said = False
            if not is_said and (what := _column_flaw(Logged._make(row))):
                return self._flaw(here, what)
            before = found
            seen(event_id)
            if here in wanted:
                self.hashes[here] = found
        self.pos, self._prev = here, before
        return None

    def _flaw(self, at: int, what: str) -> Flaw:
        """Everything before it was right."""
        self.pos = at - 1
        return Flaw(at, what)


def _link_flaw(entry: Logged, expected: int, prev: bytes) -> str:
    if entry.pos != expected:
        return f"entry {expected} is missing; the log goes on at {entry.pos}"
    if entry.prev != prev:
        return f"entry {entry.pos} does not follow the entry before it"
    return f"the body of entry {entry.pos} is not the one that was hashed"


def _column_flaw(entry: Logged) -> str:
    if entry.kind == UNREADABLE:
        return ""
    try:
        said = entry_of_body(entry.body, f"entry {entry.pos}")
    except Undecodable as error:
        return str(error)
    for column, value in zip(Entry._fields, said, strict=True):
        if getattr(entry, column) != value:
            return f"the column {column} of entry {entry.pos} is not what its body says"
    return ""


# --- heads and manifests ----------------------------------------------------------------------


def _check_heads(heads: Iterable[Head], check: _Check, public: Checker) -> Flaw | None:
    for found in heads:
        at = found.pos
        if not is_genuine(found, public):
            return Flaw(at, f"the signature of the head at {at} is not ours")
        if at > check.pos:
            what = f"a signed head speaks of entry {at}, but the log ends at {check.pos}"
            return Flaw(check.pos + 1, what)
        if check.hashes.get(at) != found.hash:
            return Flaw(at, f"entry {at} is not the one that was signed")
    return None


def _check_manifests(history: History) -> tuple[int, Flaw | None]:
    count, position, prev = 0, 0, b""
    for manifest in history.manifests():
        what = manifest_flaw(manifest, position + 1, prev)
        if what:
            return count, Flaw(position + 1, what)
        count, position, prev = count + 1, manifest.p_to, manifest.head
    checkpoint = history.checkpoint()
    if checkpoint is not None and (checkpoint.position, checkpoint.head) != (position, prev):
        return count, Flaw(position, "the checkpoint and the last manifest do not fit together")
    return count, None


def manifest_flaw(manifest: Manifest, expected: int, prev: bytes) -> str:
    if manifest.p_from != expected:
        return f"positions {expected} to {manifest.p_from - 1} are missing"
    span = (manifest.p_from, manifest.p_to)
    if sum(r.last - r.first + 1 for r in manifest.ranges) != span[1] - span[0] + 1:
        return f"the manifest at {expected} does not count right"
    again = chained(prev, span, manifest.ranges, manifest.merkle_root, manifest.state_digest)
    if (manifest.prev, manifest.head) != (prev, again):
        return f"the manifest at {expected} is not the one that was chained"
    return ""


def _check_snapshots(history: History) -> tuple[int, Flaw | None]:
    count = 0
    for found in history.snapshots():
        try:
            opened(history, found)
        except StateDamaged:
            at = found.position
            return count, Flaw(at, f"the snapshot at position {at} is not the one that was kept")
        count += 1
    return count, None


# --- what a replica said and the log does not hold --------------------------------------------


def unlogged(holes: Sequence[Hole], said: Mapping[str, int]) -> Flaw | None:
    """A hole is a drop, unless the stream still holds what was said: then it was taken out here.

    `said` are the ids that the stream of decisions holds, and where.
    """
    for hole in holes:
        for event_id in hole.ids():
            if event_id in said:
                what = f"{event_id} is #{said[event_id]} of the stream and not in the log"
                return Flaw(0, what)
    return None
