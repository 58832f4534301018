"""Judges proofs of replicas that the log lacks what they published, or has it otherwise."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from joulie_bus.errors import NotInTheLog
from joulie_projections.chain import missing
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.missing import MissingProof, NoProof, Signer
from joulie_projections.chain.promise import hash_of, key_in
from joulie_projections.history.history import NEWEST, History

Verdict = Literal["missing", "other", "found", "unproved"]


class Judged(NamedTuple):
    file: Path
    id: str
    verdict: Verdict
    why: str = ""  # it proves nothing
    entry: int | None = None  # that has the id now
    head: int = 0  # the entry of the head that lacks it
    head_at: int = 0
    signer: Signer | None = None
    key_entry: int | None = None  # with the key of the replica's life

    @property
    def is_broken(self) -> bool:
        return self.verdict in ("missing", "other")


def proofs_in(place: Path) -> list[Path]:
    """Files of proofs: one file, a directory of them, or the spools of replicas."""
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise NotInTheLog(f"{place} is neither a proof nor a directory. Nothing was checked.")
    patterns = "*.json", f"{missing.FOLDER}/*.json", f"*/{missing.FOLDER}/*.json"
    return sorted(file for pattern in patterns for file in place.glob(pattern))


def judged(files: Iterable[Path], history: History, ring: Ring) -> Iterator[Judged]:
    for file in files:
        try:
            proof = missing.decode(file.read_bytes())
        except (OSError, msgspec.DecodeError) as error:
            yield Judged(file, file.stem, "unproved", f"it cannot be read: {error}")
        else:
            yield _judged(file, proof, history, ring)


def _judged(file: Path, proof: MissingProof, history: History, ring: Ring) -> Judged:
    head = proof.log_head
    try:
        signer = missing.signer_of(proof)
    except NoProof as error:
        return Judged(file, proof.id, "unproved", str(error))
    assert head is not None  # `signer_of` requires it
    cut = history.cut()
    why = ring.flaw_of(head)
    if not why and cut is not None and cut.made_at > head.signed_at:
        why = f"the log was trimmed since, and starts at entry {cut.pos}"
    if why:
        return Judged(file, proof.id, "unproved", why)
    entry = history.entries_of([proof.id], NEWEST).get(proof.id)
    key_id, _ = key_in(proof.key, "the proof")
    key_entry = history.entries_of([key_id], NEWEST).get(key_id)
    known = Judged(
        file,
        proof.id,
        "missing",
        "",
        entry.pos if entry is not None else None,
        head.pos,
        head.signed_at,
        signer,
        key_entry.pos if key_entry is not None and key_entry.message == proof.key else None,
    )
    if entry is None:
        return known
    is_same = hash_of(entry.message) == proof.hash
    return known._replace(verdict="found" if is_same else "other")
