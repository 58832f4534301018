"""Every version that something kept carries: one row for each version of each axis.

A version that is in force has no `until`. One that is only read has the last release that reads it,
or "always". The first row of an axis is version 1: what was written before has none, and is refused
(the schema counts on from the numbers of then). A new version is a new row here; what it takes to
read the one before stands in the module that reads it: an upcaster of the event's own type
(`events.codec.UPCASTERS`), a formula by the number in the entry, or `before` of a term or rule.

In: nothing. Out: the versions that writers state, and a table for the reference.
"""

from typing import NamedTuple

FIRST_RELEASE = "0.3.0"
IN_FORCE = ""


class Format(NamedTuple):
    axis: str
    version: str
    kept_in: str
    read_by: str  # the module
    since: str = FIRST_RELEASE
    until: str = IN_FORCE  # of versions that are not written any more


FORMATS = (
    Format("event", "1", "each message, by its type", "joulie_bus.events.codec"),
    Format("fold", "1", "manifests and snapshots", "joulie_projections.fold.comparison"),
    Format("answers", "1", "declared settings of an extender", "joulie_audit.replay.replay"),
    Format("plans", "1", "each plan", "joulie_audit.replay.replay"),
    Format("formula", "1", "declared settings of an extender", "joulie_extender.catalogue.terms"),
    Format("head", "1", "signed checkpoints", "joulie_projections.chain.head"),
    Format("promise", "1", "promises of replicas", "joulie_projections.chain.promise"),
    Format("missing", "1", "proofs of missing entries", "joulie_projections.chain.missing"),
    Format("statement", "1", "changes of the key", "joulie_projections.chain.signed"),
    Format("request", "1", "requests for them", "joulie_projections.decision_log.key_change"),
    Format("keys", "1", "head.pub", "joulie_projections.chain.keyring"),
    Format("archive", "1", "parts of an archive", "joulie_audit.archive.parts"),
    Format("index", "1", "the index of an archive", "joulie_projections.history.archive_index"),
    Format("ledger", "1", "the ledger of energy", "joulie_projections.energy.ledger"),
    Format("report", "1", "signed reports", "joulie_answers.report.document"),
    Format("schema", "0011", "the database", "joulie_migrations"),
)


def in_force(axis: str) -> str:
    """The version that is written."""
    (found,) = (each for each in FORMATS if each.axis == axis and each.until == IN_FORCE)
    return found.version
