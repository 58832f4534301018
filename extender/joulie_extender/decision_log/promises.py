"""The promises of this life of a replica: its key, the chain over its messages, and signed ends.

No I/O, no clock. `joulie_projections.chain.promise` has the forms.
"""

from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from joulie_bus.events import DecisionEntry, Promise, PromiseKey
from joulie_bus.streams.records import Message
from joulie_projections.chain.promise import NO_HASH, Promised, covers, hash_of, promise_text
from joulie_projections.chain.signed import raw_of

SIGN_AFTER_NS = 1_000_000_000
MOST_UNSIGNED = 1000  # messages, so that a proof about one of them stays short


class Promises:
    """`unsigned` is what an earlier life published after its last promise."""

    def __init__(self, unsigned: Sequence[Promised] = ()) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._earlier = unsigned
        self._is_announced = False
        self._unsigned: list[Promised] = []  # what follows the last promise
        self._unsigned_at = 0  # when the first of them was made
        self.prev = NO_HASH  # of the last message

    @property
    def is_unsigned(self) -> bool:
        return bool(self._unsigned)

    def due(self, now: int, *, at_once: bool = False) -> PromiseKey | Promise | None:
        """What comes before the next message: at first the key, and a promise when it is time."""
        if not self._is_announced:
            return self._announcement()
        # At once after the clock was set back: until it is where it was can take long.
        is_time = not 0 <= now - self._unsigned_at < SIGN_AFTER_NS
        is_due = is_time or at_once or len(self._unsigned) >= MOST_UNSIGNED
        return self._promise(now) if is_due and self._unsigned else None

    def follow(self, message: Message, event: DecisionEntry, now: int) -> Promised:
        """The message is on the disk: the chain continues from it."""
        promised = Promised(message.id, hash_of(message.data))
        self.prev, self._is_announced = promised.hash, True
        if isinstance(event, Promise):
            self._unsigned = []
        elif not isinstance(event, PromiseKey):
            if not self._unsigned:
                self._unsigned_at = now
            self._unsigned.append(promised)
        return promised

    def _announcement(self) -> PromiseKey:
        public = raw_of(self._key.public_key())
        if not self._earlier:
            return PromiseKey(public=public)
        return PromiseKey(public=public, last=self._earlier[-1].id, covers=covers(self._earlier))

    def _promise(self, now: int) -> Promise:
        last, over = self._unsigned[-1], covers(self._unsigned)
        signature = self._key.sign(promise_text(last, over, now))
        return Promise(last=last.id, covers=over, at=now, signature=signature)
