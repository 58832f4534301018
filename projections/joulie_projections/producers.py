"""Which messages are new: every producer counts what it sends, and what it counted is kept."""

from joulie_bus.codec import Origin
from joulie_projections.draft import Draft
from joulie_projections.world import Life, ProducerState

REMEMBERED_LIVES = 4  # restarts of one producer whose late messages are still told from new ones
MISSING_LIMIT = 256  # holes remembered per life; the rest counts as lost at once


def is_news(draft: Draft, origin: Origin) -> bool:
    """False for a message that a producer has sent before; remembers what is still missing.

    A pipelined producer may send again what was lost while later messages arrived, so a smaller
    number is old only if it is not one of the holes.
    """
    known = draft.producers.get(origin.producer) or ProducerState(())
    newest = known.lives[-1] if known.lives else None
    if newest is not None and origin.boot == newest.boot and origin.seq == newest.high + 1:
        # The usual case, on the path of every sample; what follows would give the same.
        going_on = Life(newest.boot, origin.seq, newest.missing, newest.lost)
        draft.producers.put(origin.producer, ProducerState((*known.lives[:-1], going_on)))
        return True
    life = next((life for life in known.lives if life.boot == origin.boot), None)
    following = _counted(life or Life(origin.boot, 0), origin.seq)
    if following is None:
        return False
    others = tuple(life for life in known.lives if life.boot != origin.boot)
    lives = (*others, following)[-REMEMBERED_LIVES:]
    draft.producers.put(origin.producer, ProducerState(lives))
    return True


def _counted(life: Life, seq: int) -> Life | None:
    if seq == life.high + 1:
        return Life(life.boot, seq, life.missing, life.lost)
    if seq > life.high:
        skipped = seq - life.high - 1
        room = max(0, MISSING_LIMIT - len(life.missing))
        kept = range(max(life.high + 1, seq - room), seq)
        missing = (*life.missing, *kept)
        return Life(life.boot, seq, missing, life.lost + skipped - len(kept))
    if seq in life.missing:
        rest = tuple(hole for hole in life.missing if hole != seq)
        return Life(life.boot, life.high, rest, life.lost)
    return None
