"""The log outside the broker and the database: sealed parts of at most one hour.

    DIR/facts/2026-11-21/10/000000000001-000000012345/   messages.* reading_messages.* batches.*
                                                         aside.* manifest.json
                                                         names.*: if rows were given to nodes there
                                                         lost.*: if messages had aged out before
    DIR/log/2026-11-21/10/000000000001-000000004711/     entries.* heads.* manifest.json
                                                         keys.*: if keys changed there

Each also has the typed tables of `joulie_audit.columns`, made from its messages or entries.
`reading_messages` are the messages whose readings a ledger folds from the typed table.

A part is written next to its final directory, read back and compared, and then renamed. Its
manifest holds the SHA-256 of each file and the seal of the part before it, so a part that is
changed, exchanged or removed is detected.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec.structs import replace

from joulie_audit.archive.columnar import format_of
from joulie_audit.archive.part_tables import (
    BATCHES,
    LOST,
    MESSAGES,
    READING_MESSAGES,
    Batch,
    FactPart,
    LogPart,
    Outline,
    PartMessages,
    batches_without,
    facts_of_columns,
    log_of_columns,
    manifests_of,
    outline_of_columns,
    placed_in,
    require_positions,
    root_of,
)
from joulie_audit.archive.untrusted_files import (
    LARGEST_MANIFEST,
    content_of,
    reading,
    require_checksum,
    require_plain_name,
)
from joulie_audit.columns.ledger_columns import Arrays, ledger_columns
from joulie_audit.columns.messages import Messages, merged
from joulie_audit.columns.part_readings import column_part
from joulie_audit.columns.tables import CARD_READINGS, KINDS, READINGS, Columns, TypedColumns
from joulie_audit.recompute.column_part import ColumnPart
from joulie_audit.workers import uncollected
from joulie_bus.core.formats import in_force
from joulie_bus.errors import ArchiveBroken
from joulie_bus.events.bounds import LARGEST
from joulie_bus.streams.subjects import MERGE_ORDER, Stream
from joulie_projections.energy.columns import LogColumns
from joulie_projections.fold.manifest import Manifest

FORMAT = f"joulie-archive/{in_force('archive')}"
FACTS, LOG = "facts", "log"
MANIFEST = "manifest.json"
OTHER_LOG = "its facts belong to another log"
_EVERY = frozenset(MERGE_ORDER)


class File(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    rows: int
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `manifest.json`: the files of a part and their checksums."""

    format: str = FORMAT
    kind: str
    first: int  # position, or number of the entry
    last: int
    files: list[File]
    root: str  # Merkle root over the bodies of entries, or over the roots of batches
    prev: str  # seal of the part before; "" for the first
    created: dict[str, str] = {}  # identity of the streams that the facts are from
    seal: str = ""  # sha256 of all of the above

    @property
    def name(self) -> str:
        return f"{self.first:012d}-{self.last:012d}"

    @classmethod
    def before_the_first(cls, kind: str) -> "Part":
        return cls(kind=kind, first=0, last=0, files=[], root="", prev="")

    def has(self, table: str) -> bool:
        return any(Path(file.name).stem == table for file in self.files)

    def follows(self, before: "Part") -> bool:
        return (self.prev, self.first) == (before.seal, before.last + 1)


def sealed(part: Part) -> Part:
    blank = replace(part, seal="")
    return replace(blank, seal=hashlib.sha256(msgspec.json.encode(blank)).hexdigest())


# --- reading ----------------------------------------------------------------------------------


def is_archive(path: Path) -> bool:
    return (path / FACTS).is_dir() or (path / LOG).is_dir()


class Archive:
    """Read-only access. Everything is checked against its seal before it is returned.

    With a `day`, `facts` and `log` are its parts alone; the manifests of all parts are there, and
    follow each other.
    """

    def __init__(self, path: Path, day: str = "") -> None:
        self.path = path
        self.day = day

    @classmethod
    def of(cls, path: Path, day: str = "") -> "Archive":
        if not is_archive(path):
            raise ArchiveBroken(str(path), f"there is neither {FACTS}/ nor {LOG}/ in it")
        return cls(path, day)

    @cached_property
    def facts(self) -> list[tuple[Path, Part]]:
        return self._of_day(FACTS)

    @cached_property
    def log(self) -> list[tuple[Path, Part]]:
        return self._of_day(LOG)

    def _of_day(self, kind: str) -> list[tuple[Path, Part]]:
        every = self.parts(kind)
        chosen = [each for each in every if self.day in ("", day_of(each[0]))]
        for (_, before), (place, part) in pairwise(chosen):
            if not part.follows(before):
                raise ArchiveBroken(str(place), f"a part of another day comes before {part.first}")
        return chosen

    def parts(self, kind: str) -> list[tuple[Path, Part]]:
        """In order; raises at the first part that does not follow the one before it."""
        found: list[tuple[Path, Part]] = []
        last = Part.before_the_first(kind)
        for file in self._manifests(kind):
            part = part_of(file, kind, content_of(file, LARGEST_MANIFEST))
            if not part.follows(last):
                raise ArchiveBroken(
                    str(file), f"it does not follow {kind} {last.last}; a part is missing"
                )
            last = part
            found.append((file.parent, part))
        return found

    def _manifests(self, kind: str) -> list[Path]:
        """Manifests of complete parts: an unfinished part starts with a dot."""
        found = self.path.glob(f"{kind}/*/*/[!.]*/{MANIFEST}")
        return sorted(found, key=lambda file: file.parent.name)

    def require_nothing_else(self, kind: str) -> None:
        """Raises if a file belongs to no part: an engine that reads all files of a name would read
        it. Unfinished parts are left out, as their names start with a dot."""
        known = {
            place / name
            for place, part in self.parts(kind)
            for name in (MANIFEST, *(file.name for file in part.files))
        }
        for file in (self.path / kind).rglob("*"):
            is_hidden = any(name.startswith(".") for name in file.relative_to(self.path).parts)
            if not is_hidden and not file.is_dir() and file not in known:
                raise ArchiveBroken(str(file), "no part of the archive lists it")

    def read_facts(self, place: Path, part: Part) -> FactPart:
        with uncollected(), reading(place):
            found = facts_of_columns(_read_tables(place, part, without=tuple(KINDS)))
            _require_root(place, part, found)
        return found

    def read_other_batches(self, place: Path, part: Part) -> list[Batch]:
        """Without their telemetry."""
        outline = self.read_outline(place, part)
        with reading(place):
            _require_root(place, part, outline.manifests)
            placed = placed_in(self.read_table(place, part, MESSAGES))
            return batches_without(Stream.TEL, outline, dict(placed))

    def read_messages(self, place: Path, part: Part) -> PartMessages:
        """Column by column: what `read_facts` has as records, in a third of the time."""
        outline = self.read_outline(place, part)
        with reading(place):
            _require_root(place, part, outline.manifests)
            others, readings = (
                self._read_messages(place, part, name) for name in (MESSAGES, READING_MESSAGES)
            )
            messages = merged([others, readings])
            require_positions(messages, outline)
        return PartMessages(outline, messages, readings.positions)

    def _read_messages(self, place: Path, part: Part, name: str) -> Messages:
        for file, content in _contents(place, part, name):
            with reading(file):
                return format_of(file.suffix).messages(content)
        raise ArchiveBroken(str(place), f"it has no table {name}")

    def read_outline(self, place: Path, part: Part, without: Sequence[str] = ()) -> Outline:
        tables = _read_tables(place, part, without=(MESSAGES, READING_MESSAGES, *KINDS, *without))
        with reading(place):
            return outline_of_columns(tables)

    def read_manifests(self, place: Path, part: Part) -> list[Manifest]:
        with reading(place):
            return manifests_of(self.read_table(place, part, BATCHES))

    def read_log(self, place: Path, part: Part) -> LogPart:
        with uncollected(), reading(place):
            found = log_of_columns(_read_tables(place, part, without=tuple(KINDS)))
            _require_root(place, part, found)
        return found

    def read_columns(self, place: Path, part: Part) -> LogColumns | None:
        """The readings of a part in columns; None where messages are lost."""
        if part.has(LOST):
            return None
        others = self.read_table(place, part, MESSAGES)
        readings, cards = (
            self._read_arrays(place, part, table.name) for table in (READINGS, CARD_READINGS)
        )
        with reading(place):
            placed, count = list(placed_in(others)), part.last - part.first + 1
            return ledger_columns(readings, cards, placed, part.first, count)

    def read_column_part(self, place: Path, part: Part) -> tuple[ColumnPart, list[Manifest]]:
        """A part of which a fold takes the readings in columns; no message of it may be lost."""
        found = self.read_messages(place, part)
        readings = self._read_arrays(place, part, READINGS.name)
        with reading(place):
            columns = column_part(readings, found.messages, str(place))
        return columns, found.outline.manifests

    def holds(self, place: Path, part: Part, name: str, columns: TypedColumns) -> bool:
        """Whether the typed table of this name has these columns."""
        for file, content in _contents(place, part, name):
            with reading(file):
                return format_of(file.suffix).holds(content, columns, KINDS[name])
        return False

    def _read_arrays(self, place: Path, part: Part, name: str) -> Arrays:
        for file, content in _contents(place, part, name):
            with reading(file):
                return format_of(file.suffix).arrays(content, KINDS[name])
        raise ArchiveBroken(str(place), f"it has no table {name}")

    def read_table(self, place: Path, part: Part, name: str) -> Columns:
        """One table of a part; empty where the part has none of that name."""
        return _read_tables(place, part, name).get(name, {})


def day_of(place: Path) -> str:
    """Of the directory of a part."""
    return place.parents[1].name


def part_of(file: Path, kind: str, content: bytes) -> Part:
    """Of the content of a manifest; `file` is its place in the archive."""
    try:
        part = msgspec.json.decode(content, type=Part)
    except msgspec.DecodeError as error:
        raise ArchiveBroken(str(file), str(error)) from error
    if part.format != FORMAT or part.kind != kind or file.parent.name != part.name:
        raise ArchiveBroken(str(file), "it does not match its directory")
    if sealed(part).seal != part.seal or msgspec.json.encode(part) != content:
        raise ArchiveBroken(str(file), "its seal does not match")
    for each in part.files:
        require_plain_name(file, each.name)
    if len({Path(each.name).stem for each in part.files}) < len(part.files):
        raise ArchiveBroken(str(file), "it lists two files of one table")
    if not 0 < part.first <= part.last <= LARGEST:
        raise ArchiveBroken(str(file), f"it ends at {part.last}, before it begins")
    return part


def _read_tables(
    place: Path, part: Part, only: str = "", without: Sequence[str] = ()
) -> dict[str, Columns]:
    tables: dict[str, Columns] = {}
    for file, content in _contents(place, part, only, without):
        with reading(file):
            tables[file.stem] = format_of(file.suffix).read(content)
    return tables


def _contents(
    place: Path, part: Part, only: str = "", without: Sequence[str] = ()
) -> Iterator[tuple[Path, bytes]]:
    for known in part.files:
        file = place / known.name
        if (only and file.stem != only) or file.stem in without:
            continue
        content = content_of(file)
        require_checksum(file, content, known.sha256)
        yield file, content


def _require_root(place: Path, part: Part, found: FactPart | LogPart | Sequence[Manifest]) -> None:
    if root_of(found) != part.root:
        raise ArchiveBroken(str(place), "its content does not match its Merkle root")


def require_same_columns(
    archive: Archive, place: Path, part: Part, typed: Mapping[str, TypedColumns]
) -> None:
    """Raises if the typed tables of a part are not those of its messages or entries: an engine that
    reads them would find figures that nobody recorded."""
    for name, columns in typed.items():
        if not archive.holds(place, part, name, columns):
            what = f"the table {name} is not that of its messages"
            raise ArchiveBroken(str(place), what)
