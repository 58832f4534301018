"""The tables for SQLAlchemy. `migrations` creates them; a test compares the two."""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

from joulie_migrations.guards import CHAINED_HASH

metadata = MetaData()
ledger_metadata = MetaData()  # with SQLite in a file of its own


def _state(name: str) -> Table:
    """One row per key: the newest state and its position.

    A rebuild fills another generation while readers use the one that the checkpoint names.
    """
    return Table(
        name,
        metadata,
        Column("generation", Integer, primary_key=True, autoincrement=False),
        Column("key", Text, primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("body", LargeBinary, nullable=False),
        Index(f"{name}_by_position", "generation", "position"),
    )


STATE_TABLES = {
    "node": _state("node_twin"),
    "pod": _state("pod"),
    "gpu": _state("gpu"),
    "facility": _state("facility"),
    "producer": _state("producer"),
    "cluster": _state("cluster_state"),
}

# Deleted keys: a reader that reads only the changes after a position needs deletions too.
gone = Table(
    "gone",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("table_name", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Index("gone_by_position", "generation", "position"),
)

# Which node had each row of the twins' columns, from which position on: decisions name their
# candidates by row. Never trimmed, because an archive holds no names of rows.
row_name = Table(
    "row_name",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False),
    Index("row_name_by_row", "ordinal", "position"),
)

# How far the streams were read for the rows, and the lease: committed together with the rows.
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("until", BigInteger, nullable=False),
    Column("inputs", LargeBinary, nullable=False),
    Column("digests", LargeBinary, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    # Until then the rows include everything in the streams; 0: not known.
    Column("complete_at", BigInteger, nullable=False, server_default=text("0")),
    # Of the PostgreSQL server under which the newest epoch began.
    Column("timeline", Text, nullable=False, server_default=""),
)

batch = Table(
    "batch",
    metadata,
    Column("p_from", BigInteger, nullable=False),
    Column("p_to", BigInteger, primary_key=True, autoincrement=False),
    Column("ranges", LargeBinary, nullable=False),
    Column("facts_hash", LargeBinary, nullable=False),
    Column("state_digest", LargeBinary, nullable=False),
    Column("prev", LargeBinary, nullable=False),
    Column("head", LargeBinary, nullable=False),
    Column("fold_version", Text, nullable=False),
    Column("committed_at", BigInteger, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("stream", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("why", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("subject", Text, nullable=False, server_default=""),
    # For many quarantined messages of one subject in one commit: the positions of the messages
    # after this one, whose bodies are not kept.
    Column("rest", LargeBinary, nullable=False, server_default=text("''")),
)

# Pods that were folded as bound and whose outcome is not in the decision log yet: inserted with the
# fold and deleted with the entry, so that each outcome is published once.
outcome_due = Table(
    "outcome_due",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("at", BigInteger, nullable=False),
    Column("pod_uid", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
)

# All rows at a position, packed: the start of time travel and of a rebuild.
snapshot = Table(
    "snapshot",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("fold_version", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# How each generation of the rows was built; the checkpoint names the one in use.
rebuilt = Table(
    "rebuilt",
    metadata,
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),
    Column("fold_version", Text, nullable=False),
    Column("state_digest", LargeBinary, nullable=False),
    Column("flipped_at", BigInteger, nullable=False),
)

# SQLite stores number, body and chain, and generates the other columns from the body: see
# `joulie_migrations.decision_table`. PostgreSQL stores all of them.
decision = Table(
    "decision",
    metadata,
    Column(
        "pos", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=False
    ),
    Column("event_id", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("pod_uid", Text, nullable=False),
    Column("pod", Text, nullable=False),
    Column("view_position", BigInteger, nullable=False),
    Column("decided_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("prev", LargeBinary, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Index("decision_by_pod_uid", "pod_uid"),
    Index("decision_by_pod", "pod"),
    Index("decision_by_view", "view_position"),
    Index("decision_by_time", "decided_at", "pos"),
    # SQLite has no sha256 function; `joulie verify` checks the hashes there.
    CheckConstraint(CHAINED_HASH, name="decision_hash").ddl_if("postgresql"),
)

# Signed heads. A row that no key signed can be inserted beside them, and collides with none.
head = Table(
    "head",
    metadata,
    Column("id", LargeBinary, primary_key=True),  # sha256 of the note
    Column("pos", BigInteger, nullable=False),
    Column("p_to", BigInteger, nullable=False),  # the position of the facts
    Column("hash", LargeBinary, nullable=False),  # of the entry
    Column("note", LargeBinary, nullable=False),
    # What unreadable messages had used of their quota: the head signs its digest.
    Column("quota", LargeBinary, nullable=False),
    Index("head_by_pos", "pos"),
)

# The Merkle tree over the entries: the roots of its whole tiles.
tree_tile = Table(
    "tree_tile",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
)

# Rows of the tables of the logs that their writer did not write. It moves them here.
foreign_row = Table(
    "foreign_row",
    metadata,
    Column("table_name", Text, primary_key=True),
    Column("pos", BigInteger, primary_key=True, autoincrement=False),
    Column("found_at", BigInteger, primary_key=True, autoincrement=False),
    Column("event_id", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("hash", LargeBinary, primary_key=True),  # several heads may have one position
)

# The newest checkpoint that each witness cosigned.
cosigned = Table(
    "cosigned",
    metadata,
    Column("witness", Text, primary_key=True),
    Column("note", LargeBinary, nullable=False),
)

# Up to where an archive holds the logs: rows before the newest cut may be deleted. The entry and
# the batch of the cut stay, and the chains continue from them.
cut = Table(
    "cut",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("pos", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("p_to", BigInteger, nullable=False),
    Column("manifest_head", LargeBinary, nullable=False),
    Column("log_seal", Text, nullable=False),
    Column("facts_seal", Text, nullable=False),
    Column("inputs", LargeBinary, nullable=False),
    Column("note", LargeBinary, nullable=False),  # the head that signs the entry
    Column("edge", LargeBinary, nullable=False),  # of the Merkle tree there: `merkle.Edge`
    Column("made_at", BigInteger, nullable=False),
    Column("made_by", Text, nullable=False),
)

# The ledger: energy per interval, packed by kind of row; coarser with age.
energy = Table(
    "energy",
    ledger_metadata,
    Column("grain", Text, primary_key=True),
    Column("start_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

# The state of the ledger's fold, committed together with the intervals that it has closed.
energy_state = Table(
    "energy_state",
    ledger_metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# The oldest code that may use this schema: a step that removes something raises it.
Table("schema_floor", metadata, Column("oldest", Text, primary_key=True))
