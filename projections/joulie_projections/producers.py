"""Which messages are new, and which come too late: every producer counts what it sends.

A pipelined producer may send again what was lost while later messages arrived. Its number is then
smaller than the newest, and it is news all the same, unless something later was said of its thing.
"""

from joulie_bus.codec import SEQ_DIGITS, Origin
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
from joulie_projections.draft import Draft
from joulie_projections.world import Life, ProducerState

REMEMBERED_LIVES = 4  # restarts of one producer whose late messages are still told from new ones
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


class Counting:
    """The usual case many times over: a producer goes on without a hole.

    How far is remembered beside the draft, and in it once `settle` is called: before anything else
    is asked about producers, and at the end.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._high: dict[str, int] = {}  # by producer:boot

    def goes_on(self, event_id: str) -> bool:
        """True if `is_news` would say so of the very next number of the newest life."""
        life, _, number = event_id.rpartition(":")
        high = self._high.get(life)
        if high is None and (high := self._begun(life)) is None:
            return False
        following = high + 1
        if number != str(following) or len(number) > SEQ_DIGITS:
            return False
        self._high[life] = following
        return True

    def settle(self) -> None:
        for life, high in self._high.items():
            producer, _, boot = life.partition(":")
            known = self._draft.producers.get(producer)
            assert known is not None, "only a known life goes on"
            *older, newest = known.lives
            going_on = Life(boot, high, newest.missing, newest.lost, newest.later)
            self._draft.producers.put(producer, ProducerState((*older, going_on)))
        self._high.clear()

    def _begun(self, life: str) -> int | None:
        """How far the newest life of a producer had counted; None for any other."""
        producer, _, boot = life.partition(":")
        known = self._draft.producers.get(producer)
        newest = known.lives[-1] if known and known.lives else None
        return newest.high if newest is not None and newest.boot == boot else None


def is_news(draft: Draft, origin: Origin) -> bool:
    """False for a message that a producer has sent before; remembers what is still missing."""
    known = draft.producers.get(origin.producer) or ProducerState(())
    newest = known.lives[-1] if known.lives else None
    if newest is not None and origin.boot == newest.boot and origin.seq == newest.high + 1:
        # The usual case, on the path of every sample; what follows would give the same.
        going_on = Life(newest.boot, origin.seq, newest.missing, newest.lost, newest.later)
        draft.producers.put(origin.producer, ProducerState((*known.lives[:-1], going_on)))
        return True
    life = next((life for life in known.lives if life.boot == origin.boot), None)
    following = _counted(life or Life(origin.boot, 0), origin.seq)
    if following is None:
        return False
    _keep(draft, origin.producer, following)
    return True


def is_overtaken(draft: Draft, origin: Origin, fact: Fact) -> bool:
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
    known = draft.producers.get(producer) or ProducerState(())
    others = tuple(other for other in known.lives if other.boot != life.boot)
    draft.producers.put(producer, ProducerState((*others, life)[-REMEMBERED_LIVES:]))


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
