"""A program that is not ours, made from the packages of Go's checksum database, checks proofs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from audit_kit import RecordedLog
from bus_kit import ask
from joulie_audit.verify.proof import prove
from joulie_projections.chain.note import InclusionProof
from joulie_projections.decision_log.heads import Signer
from joulie_projections.decision_log.tree import verifier_of
from joulie_projections.witness.cosigner import cosigned_by, witness_of

pytestmark = [
    pytest.mark.timeout(600),  # the first build compiles the packages of Go
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed"),
]
SOURCE = Path(__file__).parent / "go_checker"


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("go") / "source"
    shutil.copytree(SOURCE, made)
    environ = {**os.environ, "GOFLAGS": "-mod=mod"}
    command = ["go", "build", "-o", "checker", "."]
    done = subprocess.run(
        command, cwd=made, env=environ, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode and "proxy" in done.stderr:
        pytest.skip(f"golang.org/x/mod cannot be fetched: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return made / "checker"


def checked(checker: Path, proof: InclusionProof, *keys: str) -> tuple[int, str]:
    file = checker.parent / "entry.tlog-proof"
    file.write_text(proof.text)
    done = subprocess.run(
        [checker, file, *keys], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout.strip()


async def test_a_checker_made_from_packages_of_go_accepts_proofs_and_rejects_changed_ones(
    small_log: RecordedLog, checker: Path, tmp_path: Path
) -> None:
    await small_log.builder.answer(ask("more"))
    small_log.builder.sign()
    ring = small_log.builder.signer.public
    log, witness = str(verifier_of(ring, ring.newest)), witness_of(tmp_path / "w")
    stranger = Signer.of(tmp_path / "stranger.key").public
    async with small_log.reading() as (history, _):
        proofs = [prove(history, position, ring) for position in range(1, 12)]
    made = cosigned_by(witness, proofs[0].checkpoint, 1_800_000_000)

    for at, proof in enumerate(proofs):
        assert checked(checker, proof, log) == (0, f"index {at} of 11, 1 signatures")
    cosigned = proofs[3]._replace(checkpoint=proofs[3].checkpoint.with_signatures([made]))
    assert checked(checker, cosigned, log, str(witness.key)) == (0, "index 3 of 11, 2 signatures")

    assert checked(checker, proofs[3]._replace(extra=proofs[4].extra), log)[0] == 1
    assert checked(checker, proofs[3]._replace(at=4), log)[0] == 1
    assert checked(checker, proofs[3], str(verifier_of(stranger, stranger.newest)))[0] == 1
