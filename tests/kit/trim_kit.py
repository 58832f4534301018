"""A trim without a broker between archiver and projector: the real code of both."""

from collections.abc import Sequence
from typing import NamedTuple

from bus_kit import CLUSTER
from joulie_audit.archive.parts import Archive
from joulie_audit.retention.cut_points import CutEvidence, CutOptions, asked_cut
from joulie_bus.streams.cut_requests import CutRequest, encode, request_in
from joulie_projections.chain.head import Head
from joulie_projections.chain.keyring import Ring
from joulie_projections.fold.commit import Cut
from joulie_projections.history.trimming import TrimStore
from joulie_projections.projector.trim_streams import PurgingLog
from joulie_projections.projector.trimmer import OpenHistory, Trimmer


class Trim(NamedTuple):
    cut: Cut | None
    is_new: bool
    rows: int
    messages: dict[str, int]
    freed: int


class ArchiveTrim:
    """Asks as the archiver does, and deletes as the projector does."""

    def __init__(
        self, archive: Archive, store: TrimStore, open_history: OpenHistory, public: Ring
    ) -> None:
        self._archive = archive
        self._open_history = open_history
        self._public = public
        self.store = store
        self.trimmer = Trimmer(store, open_history, lambda: public)

    async def run(
        self, bus: PurgingLog, anchored: Sequence[Head], options: CutOptions, now: int
    ) -> Trim:
        asked = self.asked(anchored, options)
        is_new = asked is not None and self.trimmer.cut(asked, anchored, now)
        done = await self.trimmer.delete(bus, CLUSTER, asked.aside if asked else ())
        return Trim(None, is_new, 0, {}, 0) if done is None else Trim(done.cut, is_new, *done[1:])

    def asked(self, anchored: Sequence[Head], options: CutOptions) -> CutRequest | None:
        """As it arrives at the projector."""
        evidence = CutEvidence(self._archive, anchored, self._public)
        with self._open_history() as history:
            asked = asked_cut(history, evidence, options)
        return None if asked is None else request_in(encode(asked))

    def cut(self, anchored: Sequence[Head], options: CutOptions, now: int) -> bool:
        asked = self.asked(anchored, options)
        return asked is not None and self.trimmer.cut(asked, anchored, now)
