"""Submits each new checkpoint of the log to its witnesses, and keeps what they cosigned."""

import asyncio
from collections.abc import Callable, Sequence

from sqlalchemy.exc import SQLAlchemyError

from joulie_bus.errors import JoulieError, NotInTheLog
from joulie_bus.runtime.logging import get_logger
from joulie_bus.runtime.metrics import WITNESS_COSIGNED
from joulie_projections.chain.keyring import Ring
from joulie_projections.decision_log.tree import keep_cosigned
from joulie_projections.history.history import History
from joulie_projections.history.stored_tree import StoredTree, newest_head
from joulie_projections.store import database
from joulie_projections.store.database import Place
from joulie_projections.witness.asking import Answer, Finding, ask_all
from joulie_projections.witness.restored_copy import WHY, is_copy
from joulie_projections.witness.settings import WitnessSettings

POLL_S = 2.0
COSIGNED = (Finding.COSIGNED, Finding.SEEN)  # a proof needs no newer one
log = get_logger("witnesses")


class Submitter:
    def __init__(self, place: Place, settings: WitnessSettings, ring: Callable[[], Ring]) -> None:
        """`ring` reads the keys of the log, which may change."""
        self._place = place
        self._ring = ring
        self._witnesses = [each for each in settings.policy.places if each.url]
        self._submitted = b""  # the text of the newest checkpoint that every witness cosigned
        self._found = dict[str, str]()  # what each witness answered last

    async def run(self) -> None:
        """Runs until cancelled."""
        while self._witnesses:
            try:
                await asyncio.to_thread(self.submit)
            except NotInTheLog:
                pass  # nothing is signed yet
            except (SQLAlchemyError, JoulieError, OSError) as error:
                self._log("database", Finding.SILENT, str(error) or type(error).__name__)
            await asyncio.sleep(POLL_S)
        await asyncio.Event().wait()

    def submit(self) -> Sequence[Answer]:
        """Asks the witnesses about the newest checkpoint, unless all have cosigned it."""
        with History.of(self._place) as history:
            if is_copy(history.connection):
                return self._not_asked()
            newest = newest_head(history, self._ring()).checkpoint
            if newest.text == self._submitted:
                return ()
            answers = ask_all(self._witnesses, newest, StoredTree(history).consistency)
        self._keep(answers)
        if all(answer.finding in COSIGNED for answer in answers):
            self._submitted = newest.text
        return answers

    def _not_asked(self) -> Sequence[Answer]:
        for witness in self._witnesses:
            WITNESS_COSIGNED.labels(witness=witness.key.name).set(0)
            self._log(witness.key.name, Finding.SILENT, WHY)
        return ()

    def _keep(self, answers: Sequence[Answer]) -> None:
        made = [answer for answer in answers if answer.checkpoint is not None]
        for answer in answers:
            name = answer.witness.key.name
            WITNESS_COSIGNED.labels(witness=name).set(answer.finding in COSIGNED)
            self._log(name, answer.finding, answer.what)
        if not made:
            return
        engine = database.writer(self._place)
        try:
            notes = {str(each.witness.key): each.checkpoint for each in made if each.checkpoint}
            keep_cosigned(engine, notes)
        finally:
            engine.dispose()

    def _log(self, witness: str, finding: Finding, what: str) -> None:
        """Logs changes only: a witness may be away for a long time."""
        if self._found.get(witness) == finding.value:
            return
        self._found[witness] = finding.value
        if finding in COSIGNED:
            log.info("cosigned", witness=witness)
        elif finding is Finding.SILENT:
            log.warning("not_cosigned", witness=witness, why=what)
        else:
            log.error("log_contradicts_witness", witness=witness, finding=finding.value, why=what)
