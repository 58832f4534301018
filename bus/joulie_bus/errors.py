"""What can go wrong, as one tree.

    JoulieError
    ├── SettingsError            a setting that cannot be used; all of them at once
    ├── BusError
    │   ├── Unreachable          no broker to talk to
    │   ├── BrokerRefused        the broker answered, and said no
    │   ├── ExpectationFailed    somebody else wrote first (compare-and-set)
    │   ├── Undecodable          a message that is not one of our events
    │   ├── StreamGap            facts are missing between what we read and what comes next
    │   ├── StreamsMissing       nobody has made the streams yet
    │   ├── StreamReplaced       the stream is not the one that our position belongs to
    │   └── BrokerStartFailed    the embedded broker did not come up
    ├── StoreError
    │   ├── SchemaMismatch       the database was made by other code than this
    │   ├── Unreadable           the database does not let itself be read now
    │   └── Fenced               another projector took over; this one stands down
    ├── TooFarBack               the facts of that moment are not kept any more
    ├── ViewBehind               the projection did not come as far as somebody waited for
    ├── PortTaken                nobody can listen where the settings say
    ├── KubernetesRefused        the API server answered, and said no
    ├── BadRequest               a webhook body that kube-scheduler would never send
    ├── BadQuantity              a Kubernetes quantity that cannot be read
    └── DataDirectoryError       a data directory that is missing, taken or not ours

Catch the narrowest. Each message says where, what was wrong, what the system did and what to do.
"""

from collections.abc import Sequence


class JoulieError(Exception):
    """The base of everything this project raises on purpose."""


class SettingsError(JoulieError):
    def __init__(self, mistakes: Sequence[str]) -> None:
        listed = "\n".join(f"  - {mistake}" for mistake in mistakes)
        super().__init__(
            f"Nothing was started: {len(mistakes)} setting(s) cannot be used.\n{listed}"
        )
        self.mistakes = tuple(mistakes)


class BusError(JoulieError):
    """Something between us and the log."""


class Unreachable(BusError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"No NATS server answers at {url}: {why}. Nothing was sent. "
            f"Is NATS_URL right, and is the server up?"
        )
        self.url = url


class BrokerRefused(BusError):
    def __init__(self, subject: str, code: int, why: str) -> None:
        super().__init__(
            f"The broker refused {subject}: {why} (code {code}). The event was not stored."
        )
        self.subject = subject
        self.code = code


class ExpectationFailed(BusError):
    def __init__(self, subject: str, expected: int, why: str) -> None:
        super().__init__(
            f"{subject} is no longer at sequence {expected}: {why}. "
            f"Another writer came first; nothing of this batch was stored."
        )
        self.subject = subject
        self.expected = expected


class Undecodable(BusError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where} is not an event we know: {why}. It changed nothing.")
        self.where = where
        self.why = why


class StreamGap(BusError):
    def __init__(self, stream: str, wanted: int, first: int) -> None:
        super().__init__(
            f"{stream} holds nothing at sequence {wanted}; it goes on at {first}. "
            f"{first - wanted} fact(s) were removed before they were read, so reading stopped "
            f"instead of skipping them. Restore the stream, or start from an empty data directory."
        )
        self.stream = stream
        self.wanted = wanted
        self.first = first


class StreamsMissing(BusError):
    def __init__(self, url: str, names: Sequence[str]) -> None:
        super().__init__(
            f"The broker at {url} has no stream {', '.join(names)}. Nothing was read or sent. "
            f"Run `joulie migrate` with the settings of this broker's administrator: it makes them."
        )


class StreamReplaced(BusError):
    def __init__(self, stream: str, known: str, found: str) -> None:
        super().__init__(
            f"{stream} is at {found}, but our position belongs to {known}. "
            f"Reading on would mix two histories, so reading stopped. "
            f"Restore the stream, or start from an empty data directory."
        )
        self.stream = stream


class BrokerStartFailed(BusError):
    def __init__(self, what: str, why: str, log: str) -> None:
        super().__init__(
            f"The embedded nats-server did not start ({what}): {why}. Its log is {log}."
        )


class StoreError(JoulieError):
    """Something between us and the database."""


class SchemaMismatch(StoreError):
    def __init__(self, found: str, wanted: str) -> None:
        super().__init__(
            f"The database is at schema {found}, this code wants {wanted}. Nothing was touched. "
            f"Run `joulie migrate`, or use the version of joulie that made the database."
        )


class Unreadable(StoreError):
    def __init__(self, where: str, why: str) -> None:
        super().__init__(
            f"{where} cannot be read: {why}. Nothing was changed. "
            f"Is it there, and has `joulie migrate` been run?"
        )


class Fenced(StoreError):
    def __init__(self, epoch: int, position: int) -> None:
        super().__init__(
            f"Another projector took over: epoch {epoch} at position {position} is no longer ours. "
            f"Nothing of this batch was committed; this projector stands down."
        )
        self.epoch = epoch


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


class PortTaken(JoulieError):
    def __init__(self, at: str, why: str) -> None:
        super().__init__(
            f"Nothing can listen on {at}: {why}. "
            f"Stop what listens there, or choose another address."
        )


class KubernetesRefused(JoulieError):
    def __init__(self, path: str, code: int, why: str) -> None:
        super().__init__(
            f"The Kubernetes API server refused {path}: {why} (code {code}). "
            f"Nothing was changed there."
        )
        self.path = path
        self.code = code


class BadRequest(JoulieError):
    """The webhook's body; the message says where in it and what was expected."""


class BadQuantity(JoulieError):
    def __init__(self, text: object, where: str) -> None:
        super().__init__(
            f"{where} holds the quantity {text!r}, which Kubernetes' grammar does not allow. "
            f"Write it like 500m, 1.5, 1Gi or 129e6."
        )


class DataDirectoryError(JoulieError):
    """The message names the directory, what is in the way, and what to do."""
