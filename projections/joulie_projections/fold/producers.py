"""Which messages are new, and which come too late: every producer counts what it sends.

A pipelined producer may send again what was lost while later messages arrived. Its number is then
smaller than the newest, and it is news all the same, unless something later was said of its thing.

A producer counts within the family of subjects that it writes to, which the broker vouches for: a
program that may write to one family cannot spoil the counter of a producer of another one.
"""

from msgspec.structs import replace

from joulie_bus.errors import Undecodable
from joulie_bus.events import (
    Fact,
    GpuGone,
    GpuSeen,
    HardwareDiscovered,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodBound,
    PodFinished,
    PodGone,
    PodPending,
)
from joulie_bus.events.bounds import SEQ_DIGITS
from joulie_bus.events.codec import Origin
from joulie_bus.streams.authority import family_of
from joulie_bus.streams.subjects import Family, Stream, agent_name
from joulie_projections.fold.node_facts import cluster_of
from joulie_projections.state.state import CLUSTER, Life, ProducerState
from joulie_projections.state.state_changes import Draft

REMEMBERED_LIVES = 4  # restarts of one producer whose late messages are still told from new ones
RETIRED_LIVES = 500  # older restarts, by their boot alone: whatever comes from them is refused
NAMES_LIMIT = 4_000  # producers of one family; they are programs, and there are few
AGENTS_LIMIT = 50_000  # one per node
MISSING_LIMIT = 256  # holes remembered per life; the rest counts as lost at once
LATER_LIMIT = 512  # things remembered per life while there are holes; the oldest is forgotten first

# Facts of which the last one is true: an older one that comes after it says nothing any more.
_ABOUT: dict[type, str] = {
    NodeSeen: "node",
    NodeGone: "node",
    HardwareDiscovered: "hardware",
    GpuSeen: "gpu",
    GpuGone: "gpu",
    NamespaceSeen: "namespace",
    PodPending: "pod",
    PodBound: "pod",
    PodFinished: "pod",
    PodGone: "pod",
}


def by_producer_row(stream: Stream, origin: Origin) -> Origin:
    """The same, by the row that counts it."""
    return Origin(_row(stream, origin.producer), origin.boot, origin.seq)


def drop_agent(draft: Draft, node: str) -> None:
    """The agent of a node that is gone sends nothing more."""
    row = _row(Stream.TEL, agent_name(node))
    if draft.producers.get(row) is not None:
        draft.producers.drop(row)
        _count_names(draft, row, -1)


def _row(stream: Stream, producer: str) -> str:
    return f"{family_of(stream, producer)}:{producer}"


class TelemetryCounter:
    """The usual case many times over: a producer of telemetry goes on without a hole.

    How far is remembered beside the draft, and in it once `flush` is called: before anything else
    is asked about producers, and at the end.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._high: dict[str, int] = {}  # by producer:boot; agents are kept apart
        self._high_of_agents: dict[str, int] = {}

    def is_next(self, event_id: str, agent: str = "") -> bool:
        """True if `is_new` would say so of the very next number of the newest life.

        `agent` is how the ids of the agent begin that alone may write to the message's subject.
        """
        if agent and not event_id.startswith(agent):
            return False
        known = self._high_of_agents if agent else self._high
        life, _, number = event_id.rpartition(":")
        high = known.get(life)
        if high is None and (high := self._begun(life, bool(agent))) is None:
            return False
        following = high + 1
        if number != str(following) or len(number) > SEQ_DIGITS:
            return False
        known[life] = following
        return True

    def flush(self) -> None:
        for life, high in (*self._high.items(), *self._high_of_agents.items()):
            producer, _, boot = life.partition(":")
            row = _row(Stream.TEL, producer)
            known = self._draft.producers.get(row)
            assert known is not None, "only a known life goes on"
            *older, newest = known.lives
            going_on = Life(boot, high, newest.missing, newest.lost, newest.later)
            self._draft.producers.put(row, ProducerState((*older, going_on), known.retired))
        self._high.clear()
        self._high_of_agents.clear()

    def _begun(self, life: str, is_agent: bool) -> int | None:
        """How far the newest life of a producer had counted; None for any other."""
        producer, _, boot = life.partition(":")
        if (family_of(Stream.TEL, producer) is Family.AGENT) is not is_agent:
            return None
        known = self._draft.producers.get(_row(Stream.TEL, producer))
        newest = known.lives[-1] if known and known.lives else None
        return newest.high if newest is not None and newest.boot == boot else None


def is_new(draft: Draft, origin: Origin) -> bool:
    """False for a message that a producer has sent before; remembers what is still missing."""
    known = draft.producers.get(origin.producer) or ProducerState(())
    newest = known.lives[-1] if known.lives else None
    if newest is not None and origin.boot == newest.boot and origin.seq == newest.high + 1:
        # The usual case, on the path of every sample; what follows would give the same.
        going_on = Life(newest.boot, origin.seq, newest.missing, newest.lost, newest.later)
        lives = (*known.lives[:-1], going_on)
        draft.producers.put(origin.producer, ProducerState(lives, known.retired))
        return True
    life = next((life for life in known.lives if life.boot == origin.boot), None)
    following = _counted(life or _blank(known, origin), origin.seq)
    if following is None:
        return False
    _keep(draft, origin.producer, following)
    return True


def _blank(known: ProducerState, origin: Origin) -> Life:
    """A life of which nothing is known yet, as it was before this message."""
    if origin.boot in known.retired:
        why = f"its producer was restarted at least {REMEMBERED_LIVES} times since, so this is old"
        raise Undecodable("it", f"{origin.boot!r}: {why}")
    is_new_agent = not known.lives and origin.producer.startswith(f"{Family.AGENT}:")
    # An agent is forgotten with its node. One that comes back has sent what it does not send again.
    return Life(origin.boot, origin.seq - 1 if is_new_agent else 0)


def is_superseded(draft: Draft, origin: Origin, fact: Fact) -> bool:
    """Has the same producer said something later of the same thing? Asked of news only."""
    about = _ABOUT.get(type(fact))
    if about is None:
        return False
    life = _life(draft, origin)
    if not life.missing and not life.later:
        return False
    thing = f"{about} {fact.key}"
    overtaken = life.later.get(thing, 0) > origin.seq
    later = _remembered(life, thing, origin.seq) if life.missing else {}
    _keep(draft, origin.producer, Life(life.boot, life.high, life.missing, life.lost, later))
    return overtaken


def _remembered(life: Life, thing: str, seq: int) -> dict[str, int]:
    newest = max(seq, life.later.get(thing, 0))
    later = life.later | {thing: newest}
    if len(later) > LATER_LIMIT:  # by number, because rows do not keep the order of a dict
        del later[min(later, key=later.__getitem__)]
    return later


def _life(draft: Draft, origin: Origin) -> Life:
    known = draft.producers.get(origin.producer)
    assert known is not None, "is_news has just counted it"
    return next(life for life in known.lives if life.boot == origin.boot)


def _keep(draft: Draft, producer: str, life: Life) -> None:
    known = draft.producers.get(producer)
    if known is None:
        _count_names(draft, producer, +1)
        known = ProducerState(())
    lives = (*(other for other in known.lives if other.boot != life.boot), life)
    past = tuple(other.boot for other in lives[:-REMEMBERED_LIVES])
    retired = (*known.retired, *past)[-RETIRED_LIVES:]
    draft.producers.put(producer, ProducerState(lives[-REMEMBERED_LIVES:], retired))


def _count_names(draft: Draft, row: str, more: int) -> None:
    """Names are free to invent for a program that may write; rows for them are not."""
    family = row.partition(":")[0]
    cluster = cluster_of(draft)
    names = cluster.producers.get(family, 0) + more
    limit = AGENTS_LIMIT if family == Family.AGENT else NAMES_LIMIT
    if more > 0 and names > limit:
        known = f"{limit} producers are known that write to the subjects of {family!r}"
        why = f"{known}, and no more are counted; give programs names that stay over restarts"
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
        rest = tuple(hole for hole in life.missing if hole != seq)
        return Life(life.boot, life.high, rest, life.lost, life.later)
    return None
