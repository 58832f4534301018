"""A standalone script accepts a valid proof and rejects everything else."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from audit_kit import RecordedLog
from bus_kit import ask
from joulie_audit.verify.proof import Difference, difference, leads_to_checkpoint, prove
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import OutcomeSeen
from joulie_projections.chain.note import InclusionProof
from joulie_projections.decision_log.heads import Head, Signer
from joulie_projections.witness.cosigner import cosigned_by, witness_of
from signed_heads import head_at

pytestmark = pytest.mark.anyio
CHECKER = Path(__file__).parents[3] / "docs" / "check_proof.py"


async def proved(recorded: RecordedLog, position: int) -> InclusionProof:
    async with recorded.reading() as (history, _):
        return prove(history, position, recorded.builder.signer.public)


@pytest.fixture
def key(recorded: RecordedLog, tmp_path: Path) -> Path:
    file = tmp_path / "head.pub"
    recorded.builder.signer.publish(file)
    return file


def checked(
    proof: InclusionProof, directory: Path, *options: str | Path, python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs the documented script in a directory without Joulie."""
    file = directory / "entry.tlog-proof"
    file.write_text(proof.text)
    return run_checker([file, *options], directory, python)


def run_checker(
    words: Sequence[str | Path], directory: Path, python: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *python, str(CHECKER), *map(str, words)]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("position", range(1, 10))
async def test_a_proof_leads_to_the_newest_checkpoint(
    small_log: RecordedLog, position: int
) -> None:
    proof = await proved(small_log, position)

    assert (proof.at, proof.checkpoint.size) == (position - 1, 9)
    assert leads_to_checkpoint(proof)


async def test_a_proof_holds_the_body_of_its_entry_and_of_no_other(
    small_log: RecordedLog,
) -> None:
    proof = await proved(small_log, 3)
    async with small_log.reading() as (history, _):
        bodies = [entry.body for entry in history.entries()]

    assert [body in proof.extra for body in bodies].count(True) == 1
    assert proof.extra.endswith(bodies[2])


async def test_the_documented_script_accepts_a_proof(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    proof = await proved(small_log, 3)
    done = checked(proof, tmp_path, "--key", key)

    entry, origin = "entry 3 (pod team/early-1, node n1, score 72.6)", proof.checkpoint.origin
    assert done.stdout == f"{entry} is one of the 9 of {origin}, signed by this key\n"
    assert done.returncode == 0


async def test_without_a_key_the_script_reports_that_the_signature_was_not_checked(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    done = checked(await proved(small_log, 3), tmp_path)

    assert done.stdout.endswith("whose signature was NOT checked (no --key)\n")
    assert (done.returncode, done.stderr) == (2, "")


async def test_without_the_package_the_script_reports_that_the_signature_was_not_checked(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    done = checked(await proved(small_log, 3), tmp_path, "--key", key, python=("-S",))

    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.endswith("NOT checked (the package `cryptography` is missing)\n")


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"\xff", b"c2sp.org/tlog-proof@v1\n\n\n", b"c2sp.org/tlog-proof@v1\n\na\nb\n\nc",
     b"c2sp.org/tlog-proof@v1\nextra eA==\nindex 0\n\no\n1\neA==\n\n\xe2\x80\x94 o eA==\n"],
)  # fmt: skip
async def test_a_file_that_is_no_proof_is_reported_without_a_traceback(
    small_log: RecordedLog, key: Path, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "entry.tlog-proof"
    file.write_bytes(content)
    words: list[list[str | Path]] = [[file, "--key", key], [file], [tmp_path / "absent"]]
    for names in words:
        done = run_checker(names, tmp_path)

        assert (done.returncode in (1, 2), done.stderr) == (True, "")
        assert done.stdout.startswith("NOT ")


@pytest.mark.parametrize("content", [b"", b"no key", b"{}", b'{"first": 7}'])
async def test_a_key_that_is_none_is_reported_without_a_traceback(
    small_log: RecordedLog, tmp_path: Path, content: bytes
) -> None:
    wrong = tmp_path / "wrong.pub"
    wrong.write_bytes(content)
    done = checked(await proved(small_log, 3), tmp_path, "--key", wrong)

    assert (done.returncode in (1, 2), done.stderr) == (True, "")


async def test_the_script_names_what_each_entry_is_about(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    seen = OutcomeSeen(pod_uid="late-1", namespace="team", name="late-1", node="n3", score=70)
    await small_log.builder.publish(seen)
    small_log.builder.sign()
    proofs = [await proved(small_log, at) for at in (1, 2, 10)]
    told = [checked(proof, tmp_path, "--key", key).stdout for proof in proofs]

    assert [line.partition(" is one")[0] for line in told] == [
        "entry 1",
        "entry 2 (pod team/early-1)",
        "entry 10 (pod team/late-1, node n3, score 70.0)",
    ]


async def test_the_script_rejects_a_changed_body(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    proof = await proved(small_log, 3)

    done = checked(proof._replace(extra=proof.extra + b"!"), tmp_path, "--key", key)

    what = "the path does not lead from the entry to the root of the checkpoint"
    assert (done.returncode, done.stdout) == (1, f"NOT proved: {what}\n")


async def test_the_script_rejects_another_position(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    proof = await proved(small_log, 3)

    assert checked(proof._replace(at=1), tmp_path, "--key", key).returncode == 1


async def test_the_script_rejects_another_key(small_log: RecordedLog, tmp_path: Path) -> None:
    other = tmp_path / "other.pub"
    Signer.of(tmp_path / "other.key").publish(other)

    done = checked(await proved(small_log, 3), tmp_path, "--key", other)

    assert (done.returncode, done.stdout) == (
        1,
        "NOT proved: the checkpoint is not signed by this key\n",
    )


async def test_the_script_demands_a_quorum_of_witnesses(
    small_log: RecordedLog, key: Path, tmp_path: Path
) -> None:
    proof = await proved(small_log, 3)
    witnesses = [witness_of(tmp_path / f"w{at}") for at in range(3)]
    made = [cosigned_by(each, proof.checkpoint, 1_800_000_000) for each in witnesses[:2]]
    proof = proof._replace(checkpoint=proof.checkpoint.with_signatures(made))
    words = [word for each in witnesses for word in ("--witness", str(each.key))]

    two = checked(proof, tmp_path, "--key", key, *words, "--quorum", "2")
    three = checked(proof, tmp_path, "--key", key, *words)

    assert two.stdout.endswith("signed by this key, and cosigned by 2 of 3 witnesses\n")
    assert three.stdout == "NOT proved: 2 of 3 witnesses cosigned, not 3\n"


def test_the_script_is_short_and_imports_no_joulie_package() -> None:
    source = CHECKER.read_text()

    assert len(source.splitlines()) < 240
    assert "import joulie" not in source


@pytest.mark.parametrize(
    ("position", "why"),
    [
        (0, "There is no entry 0: the log goes from 1 to 11."),
        (12, "There is no entry 12: the log goes from 1 to 11."),
        (10, "Entry 10 is not signed yet: the newest head is at 9."),
    ],
)
async def test_an_entry_that_cannot_be_proved_gives_the_reason(
    small_log: RecordedLog, position: int, why: str
) -> None:
    await small_log.builder.answer(ask("unsigned"))

    with pytest.raises(NotInTheLog) as reported:
        await proved(small_log, position)

    assert str(reported.value).startswith(why)


async def test_an_empty_log_has_no_proofs(recorded: RecordedLog) -> None:
    with pytest.raises(NotInTheLog, match="the log has no entries yet"):
        await proved(recorded, 1)


# --- two heads --------------------------------------------------------------------------------


async def heads_and(recorded: RecordedLog, *changes: Head) -> tuple[list[Head], Difference]:
    async with recorded.reading() as (history, _):
        heads = history.heads()
        pair = list(changes) if changes else heads
        return heads, difference(history, recorded.builder.signer.public, pair[-1], pair[0])


async def test_a_later_head_extends_an_earlier_one(small_log: RecordedLog) -> None:
    heads, found = await heads_and(small_log)

    assert found == Difference(heads[0], heads[1], "")
    assert found.entries == 2


async def test_two_different_heads_of_one_entry_are_a_fork(small_log: RecordedLog) -> None:
    heads, _ = await heads_and(small_log)
    forked = head_at(small_log.builder.signer, 9, bytes(32))

    _, found = await heads_and(small_log, heads[-1], forked)

    assert found.flaw == "two heads of entry 9 that differ: the log was forked"


async def test_a_head_of_a_rewritten_log_does_not_match(
    small_log: RecordedLog,
) -> None:
    heads, _ = await heads_and(small_log)
    before = head_at(small_log.builder.signer, 5, bytes(32))

    _, found = await heads_and(small_log, before, heads[-1])

    assert found.flaw == "entry 5 of this log does not match the first head"


async def test_a_head_of_another_log_is_detected_by_its_key(
    small_log: RecordedLog, tmp_path: Path
) -> None:
    heads, _ = await heads_and(small_log)
    foreign_signer = Signer.of(tmp_path / "other.key")

    _, found = await heads_and(small_log, head_at(foreign_signer, 3, bytes(32)), heads[-1])

    assert found.flaw == f"the head at 3 is signed by another key ({foreign_signer.key_id})"


async def test_a_head_after_the_end_of_the_log_does_not_match(small_log: RecordedLog) -> None:
    heads, _ = await heads_and(small_log)
    beyond = head_at(small_log.builder.signer, 99, bytes(32))

    _, found = await heads_and(small_log, heads[-1], beyond)

    assert found.flaw == "the entries from 10 on do not lead to the head at 99"
