"""Verification over several keys; a compromised key cannot rewrite the log."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from joulie_audit.archive.archiver import Archiver
from joulie_audit.archive.columnar import Segment
from joulie_audit.archive.parts import Archive
from joulie_audit.chain.entries import Flaw
from joulie_audit.testing import RecordedLog
from joulie_audit.verify.proof import Proof, difference, prove
from joulie_audit.verify.verify import Report, verify
from joulie_audit.verify.verify_archive import verify_archive
from joulie_bus.testing import ask
from joulie_projections.chain.keyring import ENDLESS, Ring
from joulie_projections.chain.signed import Head, KeyStatement
from joulie_projections.decision_log.heads import Signer
from joulie_projections.testing import tamper

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
    row = head.as_row()
    statement = f"INSERT INTO head ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})"
    tamper(recorded.database, statement, *row.values())


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
    for key, pos in zip(rotated.builder.signer.public.keys, (11, 7), strict=True):
        report = await verified(rotated, Ring(key._replace(after=0, until=ENDLESS)))
        assert report.flaw == Flaw(pos, f"the head at {pos} is not signed by a key of this log")


async def test_an_old_key_cannot_sign_after_its_handover(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    shutil.copyfile(any_database.builder.signer.path, tmp_path / "leaked.key")
    made = any_database.builder
    made.rotate()
    await made.answer(ask("after-1"))
    made.sign()
    leaked = Signer.of(tmp_path / "leaked.key")
    put(any_database, leaked.sign(11, await hash_of(any_database, 11), 1))

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
    put(any_database, old.sign(8, await hash_of(any_database, 8), 1))

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


async def proved(recorded: RecordedLog, position: int) -> Proof:
    async with recorded.reading() as (history, _):
        return prove(history, position, recorded.builder.signer.public)


def checked(proof: Proof, folder: Path, key: Path) -> tuple[int, str]:
    file = folder / "proof.json"
    file.write_bytes(msgspec.json.encode(proof))
    command = [sys.executable, str(CHECKER), str(file), "--key", str(key)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout.strip()


async def test_the_script_follows_a_handover_from_any_key(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    made, keys = any_database.builder, []
    for name in ("first", "second", "third"):
        keys.append(tmp_path / f"{name}.pub")
        if name == "first":
            made.signer.publish(keys[-1])
        if name != "third":
            made.rotate()
        await made.answer(ask(f"after-{name}"))
        made.sign()
    ring = made.signer.path.with_suffix(".pub")

    for position in (3, 10, 12):
        proof = await proved(any_database, position)
        for key in (keys[0], ring):
            code, output = checked(proof, tmp_path, key)
            assert (code, output[:5]) == (0, "entry"), output


async def test_the_script_rejects_a_forged_handover(rotated: RecordedLog, tmp_path: Path) -> None:
    old = tmp_path / "old.pub"
    old.write_bytes(pem(rotated.builder.signer.public.keys[0].raw))
    proof = await proved(rotated, 10)
    foreign_signer = Signer.of(tmp_path / "stranger.key")
    head = foreign_signer.sign(11, proof.head.hash, proof.head.signed_at)
    forged = msgspec.structs.replace(proof.handovers[0], new=foreign_signer.public.newest.raw)
    out_of_range = msgspec.structs.replace(proof.handovers[0], pos=20)

    assert checked(proof, tmp_path, old)[0] == 0
    for changed in (
        msgspec.structs.replace(proof, head=head, handovers=[forged]),
        msgspec.structs.replace(proof, head=head, handovers=[]),
        msgspec.structs.replace(proof, handovers=[out_of_range]),
        msgspec.structs.replace(proof, handovers=[]),
    ):
        assert checked(changed, tmp_path, old) == (
            1,
            "NOT proved: the head is not signed by this key",
        )


async def test_a_proof_avoids_heads_of_a_compromised_key(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    made = rotated.builder
    ring = made.signer.path.with_suffix(".pub")
    before = await proved(rotated, 8)
    made.retire(made.signer.public.keys[0].id, since=7)
    after = await proved(rotated, 8)

    assert (before.head.pos, after.head.pos) == (9, 11)
    assert checked(before, tmp_path, ring)[0] == 1
    assert checked(after, tmp_path, ring)[0] == 0


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


async def archived(recorded: RecordedLog, to: Path, keys: tuple[KeyStatement, ...]) -> Archive:
    async with recorded.reading() as (history, facts):
        await Archiver(to, Segment(), 2**62, keys).run(history, facts)
    return Archive.of(to)


async def test_an_archive_is_verified_with_its_first_key_alone(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    ring = rotated.builder.signer.public
    archive = await archived(rotated, tmp_path / "archive", ring.statements)

    assert verify_archive(archive, Ring(ring.first)).flaw is None


async def test_a_handover_after_its_entry_was_archived_is_in_the_next_part(
    any_database: RecordedLog, tmp_path: Path
) -> None:
    to, made = tmp_path / "archive", any_database.builder
    await archived(any_database, to, ())
    made.rotate()
    await made.answer(ask("after-1"))
    made.sign()
    archive = await archived(any_database, to, made.signer.public.statements)

    parts = [archive.read_log(place, part) for place, part in archive.parts("log")]
    assert parts[0].keys == ()
    assert sum(len(part.keys) for part in parts) == 1
    assert verify_archive(archive, Ring(made.signer.public.first)).flaw is None


async def test_an_archive_without_its_handovers_needs_the_ring(
    rotated: RecordedLog, tmp_path: Path
) -> None:
    ring = rotated.builder.signer.public
    archive = await archived(rotated, tmp_path / "archive", ())

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
    archive = await archived(any_database, tmp_path / "archive", ())
    old = made.signer.key_id
    await made.answer(ask("late-4"))
    made.sign()
    made.rotate()
    made.retire(old, since=9)

    flaw = verify_archive(archive, made.signer.public).flaw

    assert flaw is not None
    assert "compromised since entry 9, and no head of another key covers it" in flaw
