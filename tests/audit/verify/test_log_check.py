"""A replica finds out by itself that the signed log lacks what it published, and can prove it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from audit_kit import RecordedLog
from bus_kit import CLUSTER
from joulie_audit.verify.missing_answers import Judged, judged, proofs_in
from joulie_bus.errors import NotInTheLog
from joulie_bus.events import codec
from joulie_bus.streams.records import Message, Record
from joulie_bus.streams.subjects import Stream
from joulie_cli.main import main
from joulie_extender.decision_log.log_check import LogCheck
from joulie_projections.chain import missing
from joulie_projections.chain.head import encode
from joulie_projections.chain.keyring import Ring
from joulie_projections.chain.missing import MissingProof, NoProof, signer_of
from joulie_projections.chain.promise import prev_in
from joulie_projections.decision_log.heads import Signer
from promising import Replica, changed

pytestmark = pytest.mark.anyio
Reads = Callable[[Sequence[Record]], Sequence[Record]]  # what of the stream becomes entries


class Site:
    """A replica, and a projector that reads what it publishes."""

    def __init__(self, recorded: RecordedLog, directory: Path) -> None:
        self.recorded = recorded
        self.builder, self.database = recorded.builder, recorded.database
        self.bus, self.directory = recorded.builder.bus, directory
        self._read = 0

    @contextlib.contextmanager
    def replica(self, boot: str = "b1") -> Generator["Checked", None, None]:
        with Replica.living(self.directory, boot) as living:
            yield Checked(self, living)

    async def project(self, reads: Reads = lambda records: records) -> None:
        """Entries of all new messages, and a head in its stream."""
        async with self.bus.reading(Stream.DEC, self._read) as reader:
            records = reader.take(10_000)
        self._read = records[-1].sequence
        await self.builder.leave_out(reads(records), records[-1])
        await self.sign()

    def lose_decisions(self) -> None:
        """The broker creates their stream anew."""
        self.builder.broker.recreate(Stream.DEC)
        self._read = 0

    async def sign(self) -> None:
        head = self.builder.sign()
        await self.bus.publish([Message(CLUSTER.heads, f"head:{head.pos}", encode(head))])


class Checked:
    """A life of the replica, with its look at the log."""

    def __init__(self, site: Site, replica: Replica) -> None:
        self.replica, self._site = replica, site
        self.check = LogCheck(replica.kept, site.directory, site.database, CLUSTER)

    async def publishes(self, *numbers: int, signs: bool = True) -> None:
        self.replica.decides(*numbers)
        if signs:
            self.replica.promised.sign(at_once=True)
        await self._site.bus.publish(self.replica.published)
        self.replica.ships(len(self.replica.published))

    async def looks(self) -> dict[str, int]:
        """What is missing, or has another content."""
        await self.check.look(self._site.bus)
        found = Counter[str](proof.what for proof in self.proofs())
        assert found.total() == self.check.count()
        return dict(found)

    def proofs(self) -> list[MissingProof]:
        files = sorted((self._site.directory / "missing").glob("*.json"))
        return [missing.decode(file.read_bytes()) for file in files]


@pytest.fixture
def site(recorded: RecordedLog, tmp_path: Path) -> Site:
    return Site(recorded, tmp_path / "spool")


def without(*numbers: int) -> Reads:
    """A projector that leaves messages with these numbers out, of each life."""
    left_out = {str(number) for number in numbers}
    return lambda records: [
        record for record in records if _id(record).rpartition(":")[2] not in left_out
    ]


def with_another(number: int) -> Reads:
    """A projector that writes an entry about another pod under the same id."""
    return lambda records: [
        replace_data(record) if _id(record).endswith(f":{number}") else record for record in records
    ]


def replace_data(record: Record) -> Record:
    return record._replace(data=changed(record.data))


def _id(record: Record) -> str:
    return codec.open_envelope(record.data, "here").id


async def test_hashes_wait_until_a_head_contains_their_messages(site: Site) -> None:
    with site.replica() as life:
        await life.publishes(1, 2)
        assert life.replica.kept.waiting == 4  # with the key and the promise
        assert await life.looks() == {}
        assert life.replica.kept.waiting == 4
        await site.project()
        assert await life.looks() == {}
        assert life.replica.kept.waiting == 0


async def test_a_head_that_has_not_read_so_far_settles_nothing(site: Site) -> None:
    with site.replica() as life:
        await life.publishes(1)
        await site.project()
        await life.publishes(2, 3)
        waiting = life.replica.kept.waiting
        assert await life.looks() == {}
        assert life.replica.kept.waiting == waiting
        await site.project()
        await life.looks()
        assert life.replica.kept.waiting == 0


async def test_a_message_without_an_entry_is_missing_and_its_proof_is_signed(site: Site) -> None:
    with site.replica() as life, capture_logs() as lines:
        await life.publishes(1, 2, 3)
        await life.looks()
        await site.project(without(3))
        assert await life.looks() == {"missing": 1}
        assert await life.looks() == {"missing": 1}
        [proof] = life.proofs()

    assert (proof.what, proof.id, proof.entry) == ("missing", "extender-0:b1:3", None)
    assert signer_of(proof).id == "extender-0:b1:5"
    assert [line["answers"] for line in lines if line["event"] == "answers_missing"] == [1]


async def test_an_entry_with_another_content_is_proved(site: Site) -> None:
    with site.replica() as life:
        await life.publishes(1, 2, 3)
        await life.looks()
        await site.project(with_another(2))
        assert await life.looks() == {"other": 1}
        [proof] = life.proofs()

    assert (proof.what, proof.id, proof.entry) == ("other", "extender-0:b1:2", 2)
    assert signer_of(proof).id == "extender-0:b1:5"


async def test_a_whole_life_that_is_left_out_is_proved(site: Site) -> None:
    with site.replica("b1") as ended:
        await ended.publishes(1, 2)
    with site.replica("b2") as life:
        await life.publishes(3)
        await life.looks()
        await site.project(lambda records: [r for r in records if "extender-0:b1:" not in _id(r)])
        assert await life.looks() == {"missing": 4}
        proofs = life.proofs()

    # The key is a proof of itself, and so is the promise.
    by = ["extender-0:b1:1", "extender-0:b1:4", "extender-0:b1:4", "extender-0:b1:4"]
    assert [signer_of(proof).id for proof in proofs] == by


async def test_a_kill_forgets_no_hash(site: Site) -> None:
    with site.replica("b1") as killed:
        await killed.publishes(1, 2, signs=False)
    with site.replica("b2") as life:
        await life.publishes(3)
        await life.looks()
        await site.project(without(2))
        assert await life.looks() == {"missing": 2}  # number 2 of both lives
        first, second = life.proofs()

    assert [first.id, second.id] == ["extender-0:b1:2", "extender-0:b2:2"]
    # The killed life signed nothing, and the next one names what it published.
    assert (signer_of(first).id, signer_of(first).at) == ("extender-0:b2:1", None)
    assert signer_of(second).id == "extender-0:b2:3"


async def test_a_proof_survives_a_kill_and_is_counted_again(site: Site) -> None:
    with site.replica("b1") as life:
        await life.publishes(1, 2)
        await life.looks()
        await site.project(without(2))
        await life.looks()
    with site.replica("b2") as following:
        assert await following.looks() == {"missing": 1}


async def test_an_entry_that_comes_after_all_ends_the_alarm(site: Site) -> None:
    """As after a database that was set back: it is read from the stream again."""
    with site.replica() as life, capture_logs() as lines:
        await life.publishes(1, 2)
        await life.looks()
        left_out: list[Record] = []

        def later(records: Sequence[Record]) -> Sequence[Record]:
            left_out.extend(record for record in records if _id(record).endswith(":2"))
            return without(2)(records)

        await site.project(later)
        assert await life.looks() == {"missing": 1}
        await life.publishes(3)
        await site.project(lambda records: [*left_out, *records])
        assert await life.looks() == {}

    assert [line["id"] for line in lines if line["event"] == "answer_found"] == ["extender-0:b1:2"]


async def test_a_proof_that_a_person_removed_ends_the_alarm(site: Site) -> None:
    with site.replica() as life:
        await life.publishes(1, 2)
        await life.looks()
        await site.project(without(2))
        assert await life.looks() == {"missing": 1}
        (site.directory / "missing" / "extender-0-b1-2.json").unlink()
        assert await life.looks() == {}


async def test_what_the_replica_lost_itself_is_not_missing(site: Site) -> None:
    with site.replica() as life:
        life.replica.decides(1, 2)
        life.replica.promised.sign(at_once=True)
        published = life.replica.published
        await site.bus.publish([*published[:1], *published[2:]])
        life.replica.ships(4, lost=(1,))
        await life.looks()
        await site.project()
        assert await life.looks() == {}
        assert life.replica.kept.waiting == 0


async def test_a_stream_that_was_created_anew_is_looked_at_again(site: Site) -> None:
    """What only the lost stream had is missing."""
    with site.replica() as life:
        await life.publishes(1, 2)
        await life.looks()
        site.lose_decisions()
        await life.publishes(3)
        await site.project()
        await life.looks()
        await life.looks()
        assert await life.looks() == {"missing": 4}


# --- the proof ----------------------------------------------------------------------------------


@pytest.fixture
async def proof(site: Site) -> MissingProof:
    with site.replica() as life:
        await life.publishes(1, 2, 3)
        await life.looks()
        await site.project(without(3))
        await life.looks()
        [found] = life.proofs()
    return found


FORGERIES: dict[str, tuple[Callable[[MissingProof], MissingProof], str]] = {
    "a hash that was never promised": (
        lambda proof: replace(proof, hash=bytes(32)),
        "not among those that are signed",
    ),
    "other hashes": (
        lambda proof: replace(proof, hashes=[*proof.hashes, ("extender-0:b1:9", bytes(32))]),
        "signs other messages",
    ),
    "no promise": (lambda proof: replace(proof, promise=b""), "truncated"),
    "the key of another life": (
        lambda proof: replace(proof, id="extender-0:b9:3"),
        "its key is that of extender-0:b1:1",
    ),
    "a head that has not read so far": (
        lambda proof: replace(proof, stored_by=10**6),
        "has not read message 1000000",
    ),
    "no head": (lambda proof: replace(proof, head="nothing"), "no head of a log"),
}


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forged_proof_proves_nothing(name: str, proof: MissingProof) -> None:
    forge, why = FORGERIES[name]
    assert signer_of(proof)

    with pytest.raises(NoProof, match=why):
        signer_of(forge(proof))


async def test_a_proof_is_a_file_that_keeps_every_byte(proof: MissingProof) -> None:
    assert missing.decode(missing.encode(proof)) == proof
    assert prev_in(proof.promise) == proof.hashes[-1][1]


# --- judged -------------------------------------------------------------------------------------


async def verdicts(site: Site, ring: Ring) -> list[Judged]:
    async with site.recorded.reading() as (history, _):
        return list(judged(proofs_in(site.directory.parent), history, ring))


async def test_a_proof_is_judged_by_the_log_and_its_keys(site: Site) -> None:
    with site.replica() as life:
        await life.publishes(1, 2, 3)
        await life.looks()
        await site.project(lambda records: without(3)(with_another(2)(records)))
        await life.looks()
    other, lacks = await verdicts(site, site.builder.signer.public)

    assert (other.verdict, other.entry, other.key_entry) == ("other", 2, 1)
    assert (lacks.verdict, lacks.entry, lacks.key_entry) == ("missing", None, 1)
    assert lacks.signer is not None
    assert lacks.signer.id == "extender-0:b1:5"


async def test_a_proof_with_a_head_of_another_log_proves_nothing(
    site: Site, proof: MissingProof, tmp_path: Path
) -> None:
    (tmp_path / "stranger").mkdir()
    stranger = Signer.of(tmp_path / "stranger" / "head.key")
    [found] = await verdicts(site, stranger.public)

    assert (found.verdict, found.is_broken) == ("unproved", False)
    assert "is not signed by a key of this log" in found.why


async def test_a_proof_about_what_the_log_has_by_now_is_no_proof(
    site: Site, proof: MissingProof
) -> None:
    async with site.bus.reading(Stream.DEC, 0) as reader:
        records = reader.take(100)
    await site.builder.leave_out(
        [record for record in records if _id(record) == proof.id], records[-1]
    )
    await site.sign()
    [found] = await verdicts(site, site.builder.signer.public)

    assert (found.verdict, found.entry, found.is_broken) == ("found", 5, False)


@pytest.mark.parametrize(
    ("content", "verdict"),
    [
        pytest.param(changed, "OTHER: entry 1 has its id, and another content", id="a decision"),
        pytest.param(lambda data: data[:-9], "MISSING: no entry of the log has it", id="garbage"),
    ],
)
async def test_the_command_names_an_answer_whose_id_was_taken_before(
    site: Site,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: Callable[[bytes], bytes],
    verdict: str,
) -> None:
    """The broker drops the true answer as a repetition: ids to come are predictable."""
    site.builder.signer.publish(tmp_path / "head.pub")
    with site.replica() as life:
        life.replica.decides(1, 2)
        life.replica.promised.sign(at_once=True)
        answer = life.replica.published[2]
        await site.bus.publish([answer._replace(data=content(answer.data))])
        await life.publishes()
        await life.looks()
        await site.project()
        await life.looks()
    words = ["prove", "--missing", str(site.directory), "--data", str(tmp_path)]

    code = await asyncio.to_thread(main, words)

    told = capsys.readouterr().out
    assert code == 1
    assert told.startswith(f"extender-0:b1:3: {verdict}\n  promised  by extender-0:b1:4 at ")


async def test_the_command_finds_nothing_where_the_log_has_each_answer(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site.builder.signer.publish(tmp_path / "head.pub")
    with site.replica() as life:
        await life.publishes(1)
        await life.looks()
        await site.project()
        await life.looks()
    words = ["prove", "--missing", str(site.directory), "--data", str(tmp_path)]

    code = await asyncio.to_thread(main, words)

    none = "no replica has found that the log lacks its answers"
    assert (code, none in capsys.readouterr().out) == (0, True)


async def test_a_file_that_is_no_proof_is_named(site: Site, proof: MissingProof) -> None:
    (site.directory / "missing" / "a.json").write_text("{}")
    junk, found = await verdicts(site, site.builder.signer.public)

    assert (junk.verdict, junk.id, found.verdict) == ("unproved", "a", "missing")
    assert "it cannot be read" in junk.why


def test_a_place_without_proofs_is_no_error_and_a_missing_one_is(tmp_path: Path) -> None:
    assert proofs_in(tmp_path) == []
    with pytest.raises(NotInTheLog, match="neither a proof nor a directory"):
        proofs_in(tmp_path / "nosuch")
