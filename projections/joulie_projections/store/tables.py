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

metadata = MetaData()


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
    # The last lease of a projector that names rows: an older version leaves it as it is.
    Column("named_epoch", BigInteger, nullable=False, server_default=text("0")),
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
    Column("merkle_root", LargeBinary, nullable=False),
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
    CheckConstraint("hash = sha256(prev || body)", name="decision_hash").ddl_if("postgresql"),
)

head = Table(
    "head",
    metadata,
    Column("pos", BigInteger, primary_key=True, autoincrement=False),
    Column("hash", LargeBinary, nullable=False),
    Column("signed_at", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("signature", LargeBinary, nullable=False),
)

# The Merkle tree over the entries: the roots of its whole tiles, and signed checkpoints with the
# subtrees beside the last whole tile. `base` is the last entry before the tree.
tree_tile = Table(
    "tree_tile",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("root", LargeBinary, nullable=False),
)
tree_head = Table(
    "tree_head",
    metadata,
    Column("pos", BigInteger, primary_key=True, autoincrement=False),
    Column("base", BigInteger, nullable=False),
    Column("edge", LargeBinary, nullable=False),
    Column("note", LargeBinary, nullable=False),
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
    Column("signed_at", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("made_at", BigInteger, nullable=False),
    Column("made_by", Text, nullable=False),
)

# The ledger: energy per interval, packed by kind of row; coarser with age.
energy = Table(
    "energy",
    metadata,
    Column("grain", Text, primary_key=True),
    Column("start_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("body", LargeBinary, nullable=False),
)

# The state of the ledger's fold, committed together with the intervals that it has closed.
energy_state = Table(
    "energy_state",
    metadata,
    Column("name", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# The oldest code that may use this schema: a step that removes something raises it.
Table("schema_floor", metadata, Column("oldest", Text, primary_key=True))
