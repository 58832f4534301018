"""Detects duplicate, missing and late messages by the sequence numbers of their producers.

A pipelined producer may resend a lost message after later ones arrived. Its number is then below
the highest, and it is still new, unless a later message about the same subject was folded.

Numbers are counted per family of subjects, which the broker authorizes: a program that may write to
one family cannot affect the counter of a producer in another one.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from joulie_bus.errors import Undecodable
from joulie_bus.events import Fact
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.events.codec import Origin
from joulie_bus.streams.authority import family_of
from joulie_bus.streams.subjects import Family, Stream, agent_name, cap_writer_name
from joulie_projections.fold.node_facts import cluster_of
from joulie_projections.state.state import CLUSTER, Life, ProducerState
from joulie_projections.state.state_changes import Draft

KEPT_LIVES = 4  # boots of one producer that may still send late messages
RETIRED_LIVES = 500  # older boots, by name only: their messages are rejected
NAMES_LIMIT = 4_000  # producers per family; programs are few
AGENTS_LIMIT = 50_000  # one per node
MISSING_LIMIT = 256  # missing numbers kept per life; the others count as lost
LATER_LIMIT = 512  # entries of `later` per life; the oldest is dropped first


def by_producer_row(stream: Stream, origin: Origin) -> Origin:
    """The origin, with the key of the producer's row in place of its name."""
    return Origin(_row(stream, origin.producer), origin.boot, origin.seq)


def drop_agent(draft: Draft, node: str) -> None:
    """Deletes the rows of a deleted node's agent and writer, which send nothing more."""
    for producer in (agent_name(node), cap_writer_name(node)):
        row = _row(Stream.TEL, producer)
        if draft.producers.get(row) is not None:
            draft.producers.drop(row)
            _count_names(draft, row, -1)


def _row(stream: Stream, producer: str) -> str:
    return f"{family_of(stream, producer)}:{producer}"


def telemetry_row(life: str) -> str:
    """The key of the row of the producer of telemetry whose life, `producer:boot`, this is."""
    return _row(Stream.TEL, life.partition(":")[0])


def counted_on(known: ProducerState, number: int) -> ProducerState:
    """After its newest life has counted on to this number without a gap."""
    *older, newest = known.lives
    life = Life(newest.boot, number, newest.missing, newest.lost, newest.later)
    return ProducerState((*older, life), known.retired)


class TelemetryCounter:
    """Counts the common case in bulk: telemetry with numbers that continue without a gap.

    The highest numbers are kept outside the draft until `flush`, which must run before any other
    function reads the producers, and at the end.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._high: dict[str, int] = {}  # by producer:boot, without agents
        self._high_of_agents: dict[str, int] = {}

    def is_next(self, event_id: str, agent: str = "") -> bool:
        """Reports whether the id is the next number of its producer's newest life, and counts it.

        `agent` is the id prefix of the only agent that may write to the message's subject.
        """
        if agent and not event_id.startswith(agent):
            return False
        known = self._high_of_agents if agent else self._high
        life, _, number = event_id.rpartition(":")
        high = known.get(life)
        if high is None and (high := self._highest(life, bool(agent))) is None:
            return False
        following = high + 1
        if number != str(following) or len(number) > SEQ_DIGITS:
            return False
        known[life] = following
        return True

    def highest(self, life: str) -> int | None:
        """The last number of a producer's newest life; None for any other life."""
        return self._highest(life, _is_agent(life))

    def is_whole(self, life: str) -> bool:
        """Whether no number of a producer's newest life is missing: what comes next is newer than
        all that came."""
        known = self._draft.producers.get(_row(Stream.TEL, life.partition(":")[0]))
        newest = known.lives[-1] if known and known.lives else None
        return newest is not None and not newest.missing and not newest.later

    def continue_to(self, highest: Mapping[str, int]) -> None:
        """Counts on to these numbers without a gap: the caller has compared them."""
        for life, number in highest.items():
            (self._high_of_agents if _is_agent(life) else self._high)[life] = number

    def flush(self) -> None:
        for life, high in (*self._high.items(), *self._high_of_agents.items()):
            producer, _, boot = life.partition(":")
            row = _row(Stream.TEL, producer)
            known = self._draft.producers.get(row)
            assert known is not None, "only a known life continues"
            *older, newest = known.lives
            continued = Life(boot, high, newest.missing, newest.lost, newest.later)
            self._draft.producers.put(row, ProducerState((*older, continued), known.retired))
        self._high.clear()
        self._high_of_agents.clear()

    def _highest(self, life: str, is_agent: bool) -> int | None:
        """The highest number of a producer's newest life; None for any other life."""
        producer, _, boot = life.partition(":")
        if _is_agent(life) is not is_agent:
            return None
        known = self._draft.producers.get(_row(Stream.TEL, producer))
        newest = known.lives[-1] if known and known.lives else None
        return newest.high if newest is not None and newest.boot == boot else None


def _is_agent(life: str) -> bool:
    return family_of(Stream.TEL, life.partition(":")[0]) is Family.AGENT


def is_new(draft: Draft, origin: Origin) -> bool:
    """Reports whether a message is not a duplicate, and counts it; records missing numbers."""
    known = draft.producers.get(origin.producer) or ProducerState(())
    newest = known.lives[-1] if known.lives else None
    if newest is not None and origin.boot == newest.boot and origin.seq == newest.high + 1:
        # A shortcut for the common case; the general code gives the same result.
        continued = Life(newest.boot, origin.seq, newest.missing, newest.lost, newest.later)
        lives = (*known.lives[:-1], continued)
        draft.producers.put(origin.producer, ProducerState(lives, known.retired))
        return True
    life = next((life for life in known.lives if life.boot == origin.boot), None)
    counted = _counted(life or _life_before(known, origin), origin.seq)
    if counted is None:
        return False
    _keep(draft, origin.producer, counted)
    return True


def _life_before(known: ProducerState, origin: Origin) -> Life:
    """The state of an unknown life before this message. Raises Undecodable for a retired one."""
    if origin.boot in known.retired:
        why = f"its producer was restarted at least {KEPT_LIVES} times since then"
        raise Undecodable("it", f"{origin.boot!r}: {why}")
    is_new_agent = not known.lives and origin.producer.startswith(f"{Family.AGENT}:")
    # The row of an agent is deleted with its node, so a returning agent continues its numbers.
    return Life(origin.boot, origin.seq - 1 if is_new_agent else 0)


def is_superseded(draft: Draft, origin: Origin, fact: Fact) -> bool:
    """Reports whether a later message about the same subject was folded. Call it after `is_new`."""
    if not fact.REPLACES:
        return False
    life = _life(draft, origin)
    if not life.missing and not life.later:
        return False
    subject = f"{fact.REPLACES} {fact.key}"
    superseded = life.later.get(subject, 0) > origin.seq
    later = _with_later(life, subject, origin.seq) if life.missing else {}
    _keep(draft, origin.producer, Life(life.boot, life.high, life.missing, life.lost, later))
    return superseded


def _with_later(life: Life, subject: str, seq: int) -> dict[str, int]:
    newest = max(seq, life.later.get(subject, 0))
    later = life.later | {subject: newest}
    # Drop the lowest number, because the encoding of rows does not keep insertion order.
    if len(later) > LATER_LIMIT:
        del later[min(later, key=later.__getitem__)]
    return later


def _life(draft: Draft, origin: Origin) -> Life:
    known = draft.producers.get(origin.producer)
    assert known is not None, "is_new has counted it"
    return next(life for life in known.lives if life.boot == origin.boot)


def _keep(draft: Draft, producer: str, life: Life) -> None:
    known = draft.producers.get(producer)
    if known is None:
        _count_names(draft, producer, +1)
        known = ProducerState(())
    lives = (*(other for other in known.lives if other.boot != life.boot), life)
    past = tuple(other.boot for other in lives[:-KEPT_LIVES])
    retired = (*known.retired, *past)[-RETIRED_LIVES:]
    draft.producers.put(producer, ProducerState(lives[-KEPT_LIVES:], retired))


def _count_names(draft: Draft, row: str, more: int) -> None:
    """Updates the number of producers in a family; raises Undecodable above the limit.

    A program can invent any number of names, and each takes a row.
    """
    family = row.partition(":")[0]
    cluster = cluster_of(draft)
    names = cluster.producers.get(family, 0) + more
    limit = AGENTS_LIMIT if family == Family.AGENT else NAMES_LIMIT
    if more > 0 and names > limit:
        known = f"{limit} producers of the family {family!r} are known, which is the limit"
        why = f"{known}; give programs names that stay the same over restarts"
        raise Undecodable("it", why)
    others = {each: count for each, count in cluster.producers.items() if each != family}
    producers = dict(sorted({**others, family: names}.items()))
    draft.cluster.put(CLUSTER, replace(cluster, producers=producers))


def _counted(life: Life, seq: int) -> Life | None:
    if seq == life.high + 1:
        return Life(life.boot, seq, life.missing, life.lost, life.later)
    if seq > life.high:
        skipped = seq - life.high - 1
        room = max(0, MISSING_LIMIT - len(life.missing))
        kept = range(max(life.high + 1, seq - room), seq)
        missing = (*life.missing, *kept)
        return Life(life.boot, seq, missing, life.lost + skipped - len(kept), life.later)
    if seq in life.missing:
        rest = tuple(number for number in life.missing if number != seq)
        return Life(life.boot, life.high, rest, life.lost, life.later)
    return None
