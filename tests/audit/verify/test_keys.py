"""Verification over several keys; a compromised key cannot rewrite the log."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audit_kit import RecordedLog, written_archive
from bus_kit import ask
from joulie_audit.archive.parts import Archive
from joulie_audit.chain.entries import Flaw
from joulie_audit.verify.proof import difference, prove
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.errors import NotInTheLog
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import ENDLESS, Ring
from joulie_projections.chain.note import InclusionProof
from joulie_projections.decision_log.heads import Signer
from joulie_projections.history.stored_tree import StoredTree
from projections_kit import tamper
from signed_heads import head_at, insert_head

pytestmark = pytest.mark.anyio
CHECKER = Path(__file__).parents[3] / "docs" / "check_proof.py"


@pytest.fixture
async def rotated(any_database: RecordedLog) -> RecordedLog:
    """Nine entries under the first key, two under the second: heads at 7, 9 and 11."""
    made = any_database.builder
    made.rotate()
    await made.answer(ask("after-1"))
    made.sign()
    return any_database


async def verified(recorded: RecordedLog, ring: Ring | None = None, *anchored: Head) -> Report:
    async with recorded.reading() as (history, _):
        return verify(history, ring or recorded.builder.signer.public, anchored)


def put(recorded: RecordedLog, head: Head) -> None:
    tamper(recorded.database, "DELETE FROM head WHERE pos = ?", head.pos)
    insert_head(recorded.database, head)


async def root_at(recorded: RecordedLog, pos: int) -> bytes:
    async with recorded.reading() as (history, _):
        return StoredTree(history).frontier_at(pos).root


async def hash_of(recorded: RecordedLog, pos: int) -> bytes:
    async with recorded.reading() as (history, _):
        entry = history.entry(pos)
    assert entry is not None
    return entry.hash


# --- verify -----------------------------------------------------------------------------------


async def test_a_log_with_two_keys_has_no_flaw(rotated: RecordedLog) -> None:
    report = await verified(rotated)

    assert (report.entries, report.heads, report.flaw) == (11, 3, None)
    assert [key.until for key in rotated.builder.signer.public.keys] == [9, ENDLESS]


async def test_one_key_alone_does_not_verify_heads_of_the_other(rotated: RecordedLog) -> None:
    for key, known in zip(rotated.builder.signer.public.keys, (2, 1), strict=True):
        report = await verified(rotated, Ring(key._replace(after=0, until=ENDLESS)))
        assert (report.heads, report.flaw) == (known, None)
        [note] = report.notes
        assert note.endswith("of the table head that no key of this log signed")


async def test_a_log_of_which_the_key_signed_no_head_is_not_valid(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    report = await verified(rotated, Signer.of(tmp_path / "other.key").public)

    what = "no key of this log signed any of its 3 heads: is the key another one?"
    assert report.flaw == Flaw(0, what)


async def test_an_old_key_cannot_sign_after_its_handover(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    shutil.copyfile(any_database.builder.signer.path, tmp_path / "leaked.key")
    made = any_database.builder
    made.rotate()
    await made.answer(ask("after-1"))
    made.sign()
    leaked = Signer.of(tmp_path / "leaked.key")
    put(any_database, head_at(leaked, 11, await hash_of(any_database, 11)))

    report = await verified(any_database)

    what = f"the head at 11 is signed by key {leaked.key_id}, which signs up to entry 9"
    assert report.flaw == Flaw(11, what)


async def test_a_handover_for_another_log_is_a_flaw(rotated: RecordedLog) -> None:
    ring = rotated.builder.signer.public
    tamper(rotated.database, "DELETE FROM decision WHERE pos > 8")
    tamper(rotated.database, "DELETE FROM head WHERE pos > 7")

    report = await verified(rotated, ring)

    assert report.flaw == Flaw(9, "a key handover covers entry 9, but the log ends at 8")


async def test_a_compromised_key_cannot_rewrite_the_log(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    """The log is truncated to where the key signed, and signed again with it."""
    made = any_database.builder
    old = made.signer
    made.rotate()
    made.retire(old.key_id, since=7)
    tamper(any_database.database, "DELETE FROM decision WHERE pos > 8")
    tamper(any_database.database, "DELETE FROM head WHERE pos > 7")
    root = await root_at(any_database, 8)
    put(any_database, head_at(old, 8, await hash_of(any_database, 8), root=root))

    report = await verified(any_database, made.signer.public)

    assert report.flaw == Flaw(
        8,
        f"the head at 8 is signed by key {old.key_id}, which is compromised since entry 7, and no "
        "head of another key covers it",
    )


async def test_a_head_of_a_compromised_key_is_valid_if_another_key_covers_it(
    rotated: RecordedLog,
) -> None:
    made = rotated.builder
    made.retire(made.signer.public.keys[0].id, since=5)

    assert (await verified(rotated)).flaw is None


# --- proofs -----------------------------------------------------------------------------------


async def proved(recorded: RecordedLog, position: int) -> InclusionProof:
    async with recorded.reading() as (history, _):
        return prove(history, position, recorded.builder.signer.public)


def checked(proof: InclusionProof, folder: Path, key: Path) -> tuple[int, str]:
    file = folder / "entry.tlog-proof"
    file.write_text(proof.text)
    command = [sys.executable, str(CHECKER), str(file), "--key", str(key)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


async def test_the_ring_and_the_newest_key_verify_a_proof_and_the_old_key_does_not(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    ring, old, new = (tmp_path / f"{name}.pub" for name in ("ring", "old", "new"))
    keys = rotated.builder.signer.public.keys
    ring.write_bytes(rotated.builder.signer.path.with_suffix(".pub").read_bytes())
    old.write_bytes(pem(keys[0].raw))
    new.write_bytes(pem(keys[1].raw))

    for position in (3, 10):
        proof = await proved(rotated, position)
        results = [checked(proof, tmp_path, key) for key in (ring, new, old)]

        assert [code for code, _ in results] == [0, 0, 1]
        assert results[2][1] == "NOT proved: the checkpoint is not signed by this key"


async def test_the_origin_of_the_log_stays_after_a_change_of_keys(rotated: RecordedLog) -> None:
    first = rotated.builder.signer.public.keys[0]

    assert (await proved(rotated, 3)).checkpoint.origin == f"joulie/{first.id}"


async def test_a_checkpoint_of_a_key_outside_its_range_proves_nothing(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    made = rotated.builder
    ring = made.signer.path.with_suffix(".pub")
    before = await proved(rotated, 8)
    made.retire(made.signer.public.keys[0].id, since=7)
    tamper(rotated.database, "DELETE FROM head WHERE pos = 11")

    with pytest.raises(NotInTheLog, match="the newest head is at 0"):
        await proved(rotated, 8)
    assert checked(before, tmp_path, ring)[0] == 0


async def test_heads_of_two_keys_belong_to_one_log(rotated: RecordedLog) -> None:
    async with rotated.reading() as (history, _):
        first, *_, last = history.heads()
        found = difference(history, rotated.builder.signer.public, first, last)

    assert (found.flaw, found.entries) == ("", 4)


def pem(raw: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = Ed25519PublicKey.from_public_bytes(raw)
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


# --- archives ---------------------------------------------------------------------------------


async def archived(recorded: RecordedLog, to: Path) -> Archive:
    await written_archive(recorded, to)
    return Archive.of(to)


async def test_an_archive_is_verified_with_its_first_key_alone(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    ring = rotated.builder.signer.public
    archive = await archived(rotated, tmp_path / "archive")

    assert verify_archive(archive, Ring(ring.first)).flaw is None


async def test_a_handover_after_its_entry_was_archived_is_in_the_next_part(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    to, made = tmp_path / "archive", any_database.builder
    await archived(any_database, to)
    made.rotate()
    await made.answer(ask("after-1"))
    made.sign()
    archive = await archived(any_database, to)

    parts = [archive.read_log(place, part) for place, part in archive.parts("log")]
    assert parts[0].keys == ()
    assert sum(len(part.keys) for part in parts) == 1
    assert verify_archive(archive, Ring(made.signer.public.first)).flaw is None


async def test_an_archive_without_its_handovers_needs_the_ring(
    rotated: RecordedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = rotated.builder.signer.public
    with monkeypatch.context() as patch:
        patch.setattr(Ring, "statements", ())
        archive = await archived(rotated, tmp_path / "archive")

    assert verify_archive(archive, ring).flaw is None
    flaw = verify_archive(archive, Ring(ring.first)).flaw
    assert flaw is not None
    assert "the head at 11 is not signed by a key of this log" in flaw


async def test_an_archive_that_ends_with_a_compromised_key_is_a_flaw(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    """It may be complete, or truncated by an attacker with the key."""
    made = any_database.builder
    await made.answer(ask("late-3"))
    made.sign()
    archive = await archived(any_database, tmp_path / "archive")
    old = made.signer.key_id
    await made.answer(ask("late-4"))
    made.sign()
    made.rotate()
    made.retire(old, since=9)

    flaw = verify_archive(archive, made.signer.public).flaw

    assert flaw is not None
    assert "compromised since entry 9, and no head of another key covers it" in flaw
