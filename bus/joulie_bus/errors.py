"""What can go wrong, as one tree.

    JoulieError
    ├── SettingsError            a setting that cannot be used; all of them at once
    ├── BusError
    │   ├── Unreachable          no broker to talk to
    │   ├── ClientIncompatible   the installed nats-py lacks what the client depends on
    │   ├── BrokerRefused        the broker refused a request or message
    │   ├── ExpectationFailed    another writer came first (compare-and-set)
    │   ├── OutOfBounds          an event that readers would refuse; it is not sent
    │   ├── Undecodable          a message that is not one of our events
    │   ├── StreamGap            facts are missing between what we read and what comes next
    │   ├── StreamsMissing       the streams do not exist yet
    │   ├── StreamsDiffer        restored streams that do not hold what was read
    │   ├── StreamsForeign       a stream stores other subjects than ours
    │   ├── StreamsInUse         streams that hold messages and are to continue other ones
    │   ├── StreamSilent         the broker stopped sending the messages of a stream
    │   ├── StreamReplaced       another stream than the one of the position
    │   └── BrokerStartFailed    the embedded broker did not come up
    ├── StoreError
    │   ├── SchemaMismatch       the schema of the database is another version
    │   ├── MigrationDenied      the role of the database may not migrate it
    │   ├── NotOursToMigrate     a database of the settings that needs a migration
    │   ├── DatabaseUnreachable  no database to talk to
    │   ├── StateDamaged         rows differ from what was committed
    │   │   └── LedgerDamaged    rows of the ledger do
    │   ├── CountedByAnotherRule a ledger of another version of its rules
    │   ├── LedgerFenced         another process wrote the ledger
    │   ├── RecordDamaged        the recorded end of the log is no record
    │   ├── KeyMismatch          a key file of another kind than Ed25519
    │   ├── KeyRingBroken        keys that do not belong together or to the signing key
    │   ├── KeyChangeRefused     a change of keys that cannot be made
    │   ├── NotRetryable         a message in quarantine that would be refused again
    │   ├── Unreadable           the database cannot be read now
    │   ├── KeyOfAnotherLog      the signing key is not the one that signed the newest head
    │   ├── DatabaseUrlRefused   a URL that libpq does not accept, or that names a standby
    │   ├── CopyDiffers          a copy of the log that is not the original; it is not kept
    │   ├── NotMoved             the log cannot move between these databases
    │   ├── QueryRefused         too many queries of the history, or one that took too long
    │   ├── Unwritable           values that the database refuses at every attempt
    │   ├── DatabasePromoted     a standby became the primary; the incarnation ends
    │   ├── ProjectorRuns        a projector runs beside a command that requires it to be stopped
    │   └── Fenced               another projector took over; this one stops
    │       └── DatabaseSetBack  the database lost commits of this projector
    ├── TooFarBack               the facts of that time are no longer stored
    ├── ViewBehind               the projection did not reach a position in time
    ├── NotStarted               something that a start needs is missing
    │   ├── PortTaken            the address in the settings is in use
    │   ├── DiskFull             the data directory has no room
    │   └── BadKubeconfig        a kubeconfig that cannot be used
    ├── KubernetesRefused        the API server refused a request
    ├── AlreadyMoving            another run moves pods
    ├── BucketFailed             a bucket with the API of S3 that cannot be used
    ├── HeadsNotKept             a place of HEADS_TO that holds something else than this log's heads
    ├── ConsoleUnavailable       the console cannot be read through the API server
    ├── ConsoleNotReached        no console answers a client, or something else does
    ├── ConsoleRefused           the console refused a request of a client
    ├── LeaseHeld                an operator runs beside a command that requires it to be stopped
    ├── SwitchFailed             a node that was not switched off or on
    ├── WrongTarget              arguments that describe no power target
    ├── PolicyFailed             a policy that raised or returned an invalid plan
    ├── BadTrace                 a file of recorded pods that cannot be used
    ├── BadRequest               a webhook body that kube-scheduler never sends
    ├── BadQuantity              a Kubernetes quantity that cannot be read
    ├── BadName                  a name that no object in Kubernetes can have
    ├── BadAnnotation            an annotation of a pod that cannot be read
    ├── BadCatalog               a hardware catalog that cannot be used; all mistakes at once
    ├── DataDirectoryError       a data directory that is missing, taken or not ours
    ├── NotInTheLog              the requested entry does not exist, or no longer
    │   ├── NotAnswered          a question without an answer; with the status of HTTP
    │   ├── AgedOut              the stream no longer has the messages that were requested
    │   └── NeverArchived        they had aged out before they were archived
    ├── NotWritten               a file that a command was to write
    ├── NotRead                  a file that a command was to read
    ├── QueryNotRun              a query in SQL that is no single SELECT, or beyond its limits
    ├── NotCompared              a run of a comparison that failed
    ├── NotTried                 a cluster that could not be listed or read for a trial
    ├── NotArchived              an archive that cannot be written
    ├── PassedOver               messages of a stream in no manifest, or in two
    ├── NotTrimmed               an archive that does not hold what a trim would delete
    └── ArchiveBroken            a corrupted archive file, or one tampered with

Catch the most specific class. Each message says where and what was wrong, what the system did, and
what to do.
"""

from collections.abc import Mapping, Sequence

MOST_QUOTED = 500  # characters of what another program says


class JoulieError(Exception):
    """The base class of all errors of this project."""


def _sentence(text: str) -> str:
    return text if text[-1:] in (".", "?") else f"{text}."


def one_line(text: str) -> str:
    """Of a text of any length and with any characters, as a server may send it."""
    line = " ".join(text[: 4 * MOST_QUOTED].split()).rstrip(".?:")
    plain = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)
    return plain if len(plain) <= MOST_QUOTED else f"{plain[:MOST_QUOTED]}..."


class SettingsError(JoulieError):
    def __init__(self, mistakes: Sequence[str]) -> None:
        lines = (f"{_sentence(mistake)} Nothing was started." for mistake in mistakes)
        super().__init__("\n".join(lines))
        self.mistakes = tuple(mistakes)


class BusError(JoulieError):
    """An error of the log or of the connection to it."""


class Unreachable(BusError):
    def __init__(self, url: str, why: str, advice: str = "Is the server up?") -> None:
        super().__init__(f"No NATS server answers at {url}: {why}. Nothing was sent. {advice}")
        self.url = url


class ClientIncompatible(BusError):
    def __init__(self, installed: str, tested: str, lacking: Sequence[str]) -> None:
        super().__init__(
            f"nats-py {installed} has no {' and no '.join(lacking)} as this version of Joulie "
            f"requires. No connection was opened. Install nats-py{tested}."
        )
        self.lacking = tuple(lacking)


class BrokerRefused(BusError):
    def __init__(self, subject: str, code: int, why: str) -> None:
        is_request = subject.startswith("$JS.API.")
        effect = "The request had no effect." if is_request else "Nothing was stored."
        super().__init__(f"The broker refused {subject}: {why} (code {code}). {effect}")
        self.subject = subject
        self.code = code


class ExpectationFailed(BusError):
    def __init__(self, expected: Mapping[str, int], why: str) -> None:
        guards = ", ".join(f"{subject} at {sequence}" for subject, sequence in expected.items())
        super().__init__(
            f"The log is no longer where this batch expected it ({guards}): {why}. "
            f"Another writer came first; nothing of this batch was stored."
        )
        self.expected = dict(expected)


class OutOfBounds(BusError, ValueError):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"{what} is beyond the bounds of an event: {why}. It was not sent, and took no number. "
            f"Is its source what it should be? docs/events.md lists the bounds."
        )
        self.why = why


# The reason begins like this if a message is readable but its sender may not write it.
REFUSED = "refused, because its sender may not write it: "


class Undecodable(BusError):
    def __init__(self, where: str, why: str) -> None:
        what = "was " if why.startswith(REFUSED) else "is not an event we know: "
        super().__init__(f"{where} {what}{why}. It changed nothing.")
        self.where = where
        self.why = why


class StreamGap(BusError):
    def __init__(self, stream: str, wanted: int, first: int) -> None:
        super().__init__(
            f"{stream} holds nothing at sequence {wanted}; it goes on at {first}. "
            f"{first - wanted} fact(s) were removed before they were read, so reading stopped "
            f"instead of skipping them. Restore the stream; or, from an archive that holds them, "
            f"the database (`joulie archive restore`); or start from an empty data directory."
        )
        self.stream = stream
        self.wanted = wanted
        self.first = first


class StreamSilent(BusError):
    def __init__(self, stream: str, received: int, wanted: int, waited_s: float) -> None:
        super().__init__(
            f"The broker sent {received} of {wanted} messages of {stream}, and no other for "
            f"{waited_s:g} s. Nothing was concluded from them. Is the broker reachable, and not "
            f"overloaded? Try again."
        )


class StreamsMissing(BusError):
    def __init__(self, url: str, names: Sequence[str]) -> None:
        super().__init__(
            f"The broker at {url} has no stream {', '.join(names)}. Nothing was read or sent. "
            f"Run `joulie migrate` with the settings of this broker's administrator: it makes them."
        )


class StreamsForeign(BusError):
    def __init__(self, url: str, stream: str, found: Sequence[str], wanted: Sequence[str]) -> None:
        super().__init__(
            f"{stream} at {url} stores {', '.join(found) or 'nothing'}, and this version writes to "
            f"{', '.join(wanted)}. Nothing was read or sent. If it is the stream of an older "
            f"version, run `joulie migrate` with the settings of this broker's administrator; if "
            f"it is another cluster's, give each cluster an account of its own."
        )


class StreamsInUse(BusError):
    def __init__(self, url: str, found: Mapping[str, str]) -> None:
        listed = "; ".join(f"{stream}: {what}" for stream, what in found.items())
        super().__init__(
            f"The streams at {url} cannot continue those of the database: {listed}. Nothing was "
            f"changed. Stop all components and agents. If these streams are another log's, name "
            f"another broker; if they were written after the loss, delete them and run the command "
            f"again: those messages are lost, and the components report the present state again."
        )


class StreamsDiffer(BusError):
    def __init__(self, url: str, found: Mapping[str, str]) -> None:
        listed = "; ".join(f"{stream}: {what}" for stream, what in found.items())
        super().__init__(
            f"The streams at {url} do not hold what the database has read: {listed}. Nothing was "
            f"changed. Restore a newer snapshot of them; or delete them and run "
            f"`joulie migrate --new-broker`, and the log continues without their messages."
        )


class StreamReplaced(BusError):
    def __init__(self, stream: str, known: str, found: str) -> None:
        super().__init__(
            f"{stream} is at {found}, but our position belongs to {known}. "
            f"Reading on would mix two histories, so reading stopped. Restore the stream; or, if "
            f"it is lost, continue on an empty broker with `joulie migrate --new-broker`; or start "
            f"from an empty data directory."
        )
        self.stream = stream

    @classmethod
    def at(cls, stream: str, sequence: int) -> "StreamReplaced":
        """The stream holds another message at the position: it was restored and has grown since."""
        return cls(
            stream,
            f"the message {sequence} that was read before",
            f"a different message {sequence} (the stream was set back to an older state)",
        )


class BrokerStartFailed(BusError):
    def __init__(self, what: str, why: str, log: str) -> None:
        super().__init__(
            f"The embedded nats-server did not start ({what}): {why}. Its log is {log}."
        )


class StoreError(JoulieError):
    """An error of the database or of the connection to it."""


class SchemaMismatch(StoreError):
    def __init__(self, found: str, wanted: str, what_to_do: str = "") -> None:
        super().__init__(
            f"The database is at schema {found}, this code wants {wanted}. Nothing was touched. "
            + (what_to_do or "Run `joulie migrate`, or use the joulie that made the database.")
        )


class MigrationDenied(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"The database refused the migration: {why.strip()}. Nothing was changed. Migrate as "
            f"the owner of the database, with CREATEROLE the first time: docs/security.md."
        )


class NotOursToMigrate(StoreError):
    def __init__(self) -> None:
        super().__init__(
            "The database of DATABASE_URL has no tables of Joulie. Only the file in the data "
            "directory is migrated at a start. Nothing was started, and nothing was changed. If "
            "the database is meant for Joulie, run `joulie migrate`; otherwise unset DATABASE_URL."
        )


class DatabaseUnreachable(StoreError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"No database answers at {url}: {one_line(why)}. Nothing was read or written. "
            f"Is DATABASE_URL right, and is the server up?"
        )


class StateDamaged(StoreError):
    def __init__(self, what: str, position: int) -> None:
        super().__init__(
            f"{what} at position {position} is not what was committed: its digest differs. "
            f"Nothing was built on it. `joulie rebuild` folds the facts again."
        )


class LedgerDamaged(StateDamaged):
    def __init__(self) -> None:
        StoreError.__init__(
            self,
            "The ledger is not what was committed: its digest differs, or it cannot be decoded. "
            "Nothing was counted on it. `joulie ledger --rebuild` counts the energy of all facts "
            "again.",
        )


class CountedByAnotherRule(StoreError):
    def __init__(self, rule: int, ours: int) -> None:
        super().__init__(
            f"The ledger was counted by rule {rule}, and this version counts by rule {ours}. "
            f"Nothing was folded. `joulie ledger --rebuild` counts the facts again."
        )


class CopyDiffers(StoreError):
    def __init__(self, what: str) -> None:
        super().__init__(
            f"The copy of {what} differs from the original. Nothing was written to the new "
            f"database, and the old one is unchanged. `joulie verify` checks the old one."
        )


class NotMoved(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(f"{why} Nothing was changed.")


class KeyMismatch(StoreError):
    def __init__(self, path: str, wanted: str, found: str) -> None:
        super().__init__(
            f"{path} holds another kind of key than {wanted}: {found}. Nothing was signed. "
            f"Copy head.key and head.pub of this log to it, or name another data directory."
        )


class KeyOfAnotherLog(StoreError):
    def __init__(self, path: str, own: str, of_log: str) -> None:
        super().__init__(
            f"{path} holds the key {own}, and the newest head of this log is signed with {of_log}. "
            f"This projector does not lead: with another key the log could not be verified. Copy "
            f"head.key and head.pub from the projector that signs; all projectors of a log share "
            f"one key. If that key is lost, `joulie keys replace {of_log}` lets this one continue."
        )


class KeyRingBroken(StoreError):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path} is not the ring of keys that belongs here: {why}. Nothing was signed or "
            f"checked. Take it, and the head.key that belongs to it, from a copy."
        )


class KeyChangeRefused(StoreError):
    """The message says what was requested, why it is not possible, and what is."""


class NotRetryable(StoreError):
    """The message names the position and the reason."""


class SwitchFailed(JoulieError):
    def __init__(self, why: str) -> None:
        super().__init__(f"{why}. The node was not switched. The operator tries again.")


class WrongTarget(JoulieError):
    """The arguments describe no target for the power; the message says which and why."""


class Unreadable(StoreError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} cannot be read: {why}. Nothing was changed. "
            f"Is it there, and has `joulie migrate` been run?"
        )


class DatabaseUrlRefused(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(f"DATABASE_URL cannot be used: {why}. Nothing was changed.")
        self.why = why


class QueryRefused(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(f"The history was not read: {why}. Ask again later, or for less.")


class Unwritable(StoreError):
    def __init__(self, what: str, why: str) -> None:
        super().__init__(
            f"The database refuses values of {what} at every try: {why}. Nothing of them was "
            f"written. The message that holds them is found and set aside: `joulie dead list`."
        )
        self.why = why


class Fenced(StoreError):
    def __init__(self, epoch: int, position: int) -> None:
        super().__init__(
            f"Another projector took over: epoch {epoch} at position {position} is no longer ours. "
            f"Nothing of this batch was committed; this projector stands down."
        )
        self.epoch = epoch


class RecordDamaged(StoreError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"What the table checkpoint records of the decision log cannot be read: {why}. Nothing "
            "was done. A projector records it again; another process wrote to the table."
        )


class LedgerFenced(StoreError):
    def __init__(self, position: int) -> None:
        super().__init__(
            f"Another process wrote the ledger: it is no longer at position {position}. Nothing of "
            "this pass was committed; the ledger is read again, and folded on from there."
        )


class DatabaseSetBack(Fenced):
    def __init__(self, what: str, held: int, known: int) -> None:
        StoreError.__init__(
            self,
            f"The database is at {what} {held}, and this projector committed {known} before: a "
            f"standby took over that had not received all of it, or an older copy was restored. "
            f"Nothing of this batch was committed. This projector ends; the next one reads again "
            f"from {held}. A synchronous standby prevents this.",
        )
        self.held = held


class DatabasePromoted(StoreError):
    def __init__(self, position: int) -> None:
        super().__init__(
            f"The database server was promoted, and may lack a lease or commits that were made "
            f"after position {position}. Nothing of this batch was committed; the projector "
            f"begins a new incarnation, and commits again."
        )


class ProjectorRuns(StoreError):
    def __init__(self, waited_s: float) -> None:
        super().__init__(
            f"A projector held the lease of this database for {waited_s:.0f} s. Nothing was "
            f"changed. Stop all components first."
        )


class TooFarBack(JoulieError):
    def __init__(self, position: int, why: str) -> None:
        super().__init__(
            f"What was believed at position {position} cannot be folded again: {why} "
            f"Nothing was changed; choose a later position."
        )


class ViewBehind(JoulieError):
    def __init__(self, here: int, wanted: int, waited_s: float) -> None:
        at = f"at position {here}" if here >= 0 else "not loaded yet"
        super().__init__(
            f"The projection is {at} and did not reach {wanted} within {waited_s:g} s. "
            f"Is a projector running? `joulie status` shows it."
        )


class NotStarted(JoulieError):
    """Something that a start needs is missing. The exit code of such a command is 1."""


class PortTaken(NotStarted):
    def __init__(self, at: str, why: str) -> None:
        super().__init__(
            f"Nothing can listen on {at}: {why}. Nothing was started. "
            f"Stop what listens there, or choose another address."
        )


class DiskFull(NotStarted):
    def __init__(self, directory: str, why: str) -> None:
        super().__init__(
            f"The data directory {directory} has no room: {why}. Nothing was started. "
            f"Make room there, or choose another directory with --data."
        )


class BadKubeconfig(NotStarted):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"{why}. Nothing was started. "
            f"Name another file with --kubeconfig, or none for no cluster."
        )


class KubernetesRefused(JoulieError):
    def __init__(
        self,
        path: str,
        code: int,
        why: str,
        retry_after_s: float = 0.0,
        *,
        by_service: bool = False,
    ) -> None:
        super().__init__(
            f"The Kubernetes API server refused {path}: {why} (code {code}). "
            f"Nothing was changed there."
        )
        self.path = path
        self.code = code
        self.why = why
        self.by_service = by_service  # not the server, but a Service behind it
        self.retry_after_s = retry_after_s  # as the server requires


class AlreadyMoving(JoulieError):
    def __init__(self, node: str, until: str) -> None:
        super().__init__(
            f"Another run moves pods away from {node}, or was killed. Nothing was evicted. After "
            f"{until} this command removes its cordon."
        )


class BucketFailed(JoulieError):
    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"The bucket {place} cannot be used: {why}. Nothing was changed there. Check the "
            "address, S3_REGION, S3_ACCESS_KEY_FILE, S3_SECRET_KEY_FILE and S3_CA_FILE."
        )
        self.why = why


class HeadsNotKept(JoulieError):
    def __init__(self, place: str, why: str) -> None:
        super().__init__(
            f"{place} does not keep the heads of this log: {why}. Nothing was changed there. "
            "`joulie verify --heads PLACE` compares what it holds with the log; for a new log name "
            "an empty place."
        )


class ConsoleUnavailable(JoulieError):
    def __init__(self, namespace: str, why: str, hint: str) -> None:
        super().__init__(
            f"The console in the namespace {namespace} cannot be read: {why} Nothing is shown. "
            f"{hint}"
        )


class ConsoleNotReached(JoulieError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"No console answers at {url}: {why.rstrip('.')}. Nothing was read. Is the URL right, "
            f"and is the console up?"
        )
        self.url = url


class ConsoleRefused(JoulieError):
    def __init__(self, url: str, path: str, status: int, why: str) -> None:
        super().__init__(
            f"The console at {url} refused {path} with status {status}: {why.rstrip('.')}. Nothing "
            f"was read. Is it the URL of a console, and does the console know what was asked for?"
        )
        self.status = status


class LeaseHeld(JoulieError):
    def __init__(self, name: str, namespace: str, waited_s: float) -> None:
        super().__init__(
            f"Another process held the Lease {name} in {namespace} for {waited_s:.0f} s. Nothing "
            f"was changed. Stop the operator first, with "
            f"`kubectl -n {namespace} scale deployment joulie-operator --replicas 0`."
        )


class PolicyFailed(JoulieError):
    def __init__(self, policy: str, why: str) -> None:
        super().__init__(
            f"The policy {policy} gave no answer: {why}. "
            f"No plan was made; nodes stay as they are. Mend it, or choose another by POLICY_TYPE."
        )
        self.policy = policy


class BadTrace(JoulieError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"The trace {where} cannot be used: {why}. Nothing was simulated. "
            f"Name a list of pods or nodes of Alibaba's cluster-trace-gpu-v2023 (openb), as CSV."
        )


class BadRequest(JoulieError):
    """The webhook's body; the message says where in it and what was expected."""


class BadQuantity(JoulieError):
    def __init__(self, text: object, where: str) -> None:
        super().__init__(
            f"{where} holds the quantity {text!r}, which Kubernetes' grammar does not allow. "
            f"Write it like 500m, 1.5, 1Gi or 129e6."
        )


class BadName(JoulieError):
    def __init__(self, what: str, name: str, wanted: str) -> None:
        super().__init__(
            f"{what} is {name!r}, which is not {wanted}. It was not used. "
            f"Send the name that the object has in Kubernetes."
        )


class BadAnnotation(JoulieError):
    def __init__(self, name: str, text: str, wanted: str) -> None:
        super().__init__(
            f"The annotation {name} says {text[:40]!r}. It was not guessed what is meant. "
            f"Write {wanted}."
        )
        self.name = name


class BadCatalog(JoulieError):
    def __init__(self, where: str, mistakes: Sequence[str]) -> None:
        listed = "\n".join(f"  - {mistake}" for mistake in mistakes)
        super().__init__(
            f"{where} cannot be used as a hardware catalog: {len(mistakes)} mistake(s). "
            f"Nothing of it was taken. Mend it, or leave it out.\n{listed}"
        )
        self.mistakes = tuple(mistakes)


class DataDirectoryError(JoulieError):
    """The message names the directory, the reason, and what to do."""


class NotWritten(JoulieError):
    def __init__(self, named: str, why: str) -> None:
        super().__init__(
            f"{named} cannot be written: {why}. Nothing was written. Name a file in a directory "
            "that exists and has room."
        )


class NotRead(JoulieError):
    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file} cannot be read: {why}. Nothing was asked. Name another file.")


class NotCompared(JoulieError):
    """A run of a comparison failed, so there is nothing to compare."""


class NotTried(JoulieError):
    def __init__(self, why: str, advice: str = "Nothing was computed.") -> None:
        super().__init__(f"{_sentence(why)} {advice}")


class QueryNotRun(JoulieError):
    def __init__(self, why: str, advice: str) -> None:
        super().__init__(
            f"The query was not run, and nothing was changed. {_sentence(why)} {advice}"
        )


class NotArchived(JoulieError):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"{path} cannot be written: {why}. Complete parts stay, and nothing that they lack was "
            "trimmed. Make room there, or enlarge its volume; the next run continues after the "
            "last complete part."
        )


class PassedOver(JoulieError):
    """Messages of a stream that no commit read, or two."""

    def __init__(self, what: str, effect: str) -> None:
        super().__init__(
            f"The manifests of this log do not join: {what}. {effect} Restore the database as it "
            f"was before (`joulie restore --at TIME`) and start the projector, which reads on from "
            f"there while the streams hold these messages."
        )


class NotTrimmed(JoulieError):
    """The message says why nothing was deleted."""


# Of a log without facts, whatever was asked.
EMPTY = (
    "The log is empty: no fact has been committed yet. `joulie status` shows what runs; "
    "`joulie demo` fills a log in seconds."
)


class NotInTheLog(JoulieError):
    """The message says what was requested, where, and what exists instead."""


class NotAnswered(NotInTheLog):
    """A question without an answer, with the status that HTTP has for the reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class AgedOut(NotInTheLog):
    def __init__(self, stream: str, wanted: int, first: int) -> None:
        super().__init__(
            f"{stream} starts at {first}; {wanted} to {first - 1} have aged out of it. Nothing was "
            "computed. Give --archive DIR, if `joulie archive` was run in time."
        )
        self.first = first


class NeverArchived(NotInTheLog):
    def __init__(self, place: str, first: int, last: int) -> None:
        super().__init__(
            f"{place} lacks messages of the positions {first} to {last}: they had aged out of "
            "their stream before they were archived. Nothing was computed from there on. What "
            "does not fold these positions still works, such as a time behind the next snapshot."
        )


class ArchiveBroken(JoulieError):
    def __init__(self, file: str, why: str) -> None:
        super().__init__(
            f"{file} is not what was archived: {why}. Nothing of it was used. "
            "Name the directory that `joulie archive --dir` wrote, or a copy of it; without "
            "--archive, other commands than `joulie archive restore` read the streams."
        )
        self.file = file
        self.why = why
